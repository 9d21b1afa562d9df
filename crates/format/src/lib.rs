//! EROFS on-disk format.
