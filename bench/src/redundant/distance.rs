//! The distance from an image to the smallest archive, explained by causes whose bytes add up to it.

use anyhow::{Context, Result};

use super::content::{CONTENT_WINDOWS, Content};
use super::images::Images;
use crate::common::report::Table;

/// The table of a family. Each row is a difference of two measured sizes, so that the rows add up.
pub(super) fn table(family: &str, images: &Images, content: &Content) -> Result<Table> {
    let image = images.preset()?.1.size;
    let stream = |window: u32| {
        content.streams.get(&window).map(|stream| signed(stream.size)).context("a window was not measured")
    };
    let [shortest, .., longest] = CONTENT_WINDOWS;
    let archive = signed(content.archives.get(&longest).context("no archive with the longest window")?.size);
    let parts = images.parts;
    let mut rows: Vec<(String, i64)> = vec![
        ("inodes, directories and indexes of the image".into(), signed(parts.metadata)),
        ("names and headers in the archive".into(), stream(longest)? - archive),
        ("blocks of the image that nothing uses".into(), signed(parts.unused)),
        (
            format!(
                "content of the image, compared with one stream of `--long={shortest}`: clusters that are decoded alone, LZMA for large files, stored content, ends of blocks"
            ),
            signed(parts.encoded + parts.stored) - stream(shortest)?,
        ),
    ];
    for pair in CONTENT_WINDOWS.windows(2) {
        let [near, far] = pair else { continue };
        rows.push((
            format!("content that repeats at distances from {} to {}", distance(*near), distance(*far)),
            stream(*near)? - stream(*far)?,
        ));
    }
    let explained: i64 = rows.iter().map(|(_, bytes)| bytes).sum();
    let whole = signed(image) - archive;
    // Blocks count as a whole, so a last part block can make a difference.
    rows.push(("the rest: parts of blocks".into(), whole - explained));
    rows.push((format!("sum: `--preset backup` compared with `--long={longest}`"), whole));
    Ok(Table {
        title: format!("{family}: the distance to an archive"),
        text: format!(
            "The table explains why the image is larger or smaller than `tar \\| zstd -15 --long={longest}`: each line is a difference in bytes, and they add up. \
             The image has {} bytes of compressed content, {} stored, {} of metadata.",
            parts.encoded, parts.stored, parts.metadata
        ),
        head: vec!["cause", "bytes"],
        rows: rows.into_iter().map(|(cause, bytes)| vec![cause, bytes.to_string()]).collect(),
    })
}

fn distance(window: u32) -> String {
    match window {
        30 => "1 GiB".into(),
        _ => format!("{} MiB", 1 << (window - 20)),
    }
}

/// Sizes of files are far below the limit.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
