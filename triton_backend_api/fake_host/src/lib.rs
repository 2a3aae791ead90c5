//! A host for tests.
