"""Web frameworks, schedulers, LangGraph: one module each, which only its users import.

| module | for |
|---|---|
| `ttl_odm.integrations.flask` | Flask, with Flask-SQLAlchemy or plain engines |
| `ttl_odm.integrations.fastapi` | FastAPI, Starlette, Litestar, and others with an ASGI lifespan |
| `ttl_odm.integrations.celery` | Celery and its beat |
| `ttl_odm.integrations.apscheduler` | APScheduler 3 |
| `ttl_odm.integrations.dramatiq` | Dramatiq |
| `ttl_odm.integrations.procrastinate` | Procrastinate |
| `ttl_odm.integrations.langgraph` | LangGraph: a checkpointer over SQLAlchemy |

All but the last only start and stop sweepers: hiding expired rows needs no integration. None of
them knows another, and this module must not know any of them.
"""
