//! ferofs.
