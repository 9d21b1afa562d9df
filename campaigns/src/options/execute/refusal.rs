//! The reasons for which a command may refuse. Any other refusal is a finding.

/// A part of the message, and a short reason.
const KNOWN: &[(&str, &str)] = &[
    ("not a multiple of the block size", "a cluster size or -m below the block size"),
    ("for compact inodes", "values that inodes of 32 bytes cannot have"),
    ("but IDs are from 0 to 4294967294", "an offset that leads beyond the largest ID"),
    ("chunk size: not a power of two from a block", "chunks smaller than a block"),
    ("give -b", "--incremental into an image with another block size than -b"),
    ("needs a compressor (-z)", "compressed metadata without a compressor"),
    ("there is nothing to patch: both trees are the same", "a patch that changes nothing"),
    ("leaves out the labels of --file-contexts", "options that exclude each other"),
    ("cannot be used with", "options that exclude each other"),
    ("cannot be used multiple times", "an option that is given twice"),
    ("bytes name no device", "a device for chunks, whose addresses name no device"),
    ("or smaller than a block", "chunks smaller than a block"),
    ("the size is no multiple of the block size", "hints of clusters below the block size"),
    ("largest extent: less than a block", "extents below the block size"),
    ("no free slot for another root directory", "a small image that has no free slot for another root"),
];

/// The short reason, if the message of the command has a known one.
pub(crate) fn known(said: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(text, _)| said.contains(text)).map(|(_, reason)| *reason)
}
