"""The contract as named cases, run on every backend; docs/conformance.md is made of them."""
