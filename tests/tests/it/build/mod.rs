//! Building images: from a directory, with all options, compared with erofs-utils.
//!
//! - `callers`: the command lines of known callers of mkfs.erofs.
//! - `definitions`: files that exclude, define and order files.
//! - `erofs_utils`: erofs-utils read images of ferofs, and ferofs reads images of erofs-utils.
//! - `estimate`: estimates of size and time.
//! - `holes`: holes in compressed files.
//! - `layers`: EROFS images as sources, and images whose data stays in their sources.
//! - `matrix`: every pair of settings.
//! - `memory`: the memory for each name, and sources that are not in the page cache.
//! - `mkfs`: the options of `mkfs.erofs`.
//! - `pinned`: the digests of some images.
//! - `preload`: fakeroot and pseudo.
//! - `round_trip`: extracting an image gives the source.
//! - `threads`: any number of workers gives the same image, bit for bit.
//! - `versions`: several versions of a tree in one image.
//! - `wide`: images with more blocks than 32 bits can count.

mod callers;
mod definitions;
mod erofs_utils;
mod estimate;
mod holes;
mod layers;
mod matrix;
mod memory;
mod mkfs;
mod pinned;
mod preload;
mod round_trip;
mod threads;
mod versions;
mod wide;
