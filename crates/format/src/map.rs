//! Where a file's bytes are.
