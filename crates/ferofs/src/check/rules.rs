//! The names of rules, for programs that read reports. They do not change between versions.

use ferofs_format::Fault;

/// The name of the rule that `fault` breaks.
#[must_use]
pub const fn rule(fault: &Fault) -> &'static str {
    match fault {
        Fault::Truncated { .. } => "truncated",
        Fault::TrailingBytes(_) => "trailing-bytes",
        Fault::Magic(_) => "magic",
        Fault::Checksum { .. } => "checksum",
        Fault::UnknownFeatures(_) => "unknown-features",
        Fault::Field { .. } => "field-value",
        Fault::FeatureNotSet(_) => "feature-not-set",
        Fault::OutOfRange { .. } => "out-of-range",
        Fault::Overflow(_) => "overflow",
        Fault::NameOrder => "name-order",
        Fault::DuplicateName => "duplicate-name",
        Fault::NameFilter => "name-filter",
        Fault::Overlap(_) => "overlap",
        Fault::Name => "name",
        Fault::DotEntry => "dot-entry",
        Fault::DirectoryLoop => "directory-loop",
        Fault::LinkCount { .. } => "link-count",
        Fault::FileTypeMismatch => "file-type",
        Fault::Map(_) => "map",
        Fault::Decode => "decode",
        Fault::LinuxDecoder(_) => "linux-decoder",
        Fault::LinuxReads(_) => "linux-reads",
        Fault::OlderLinux(_) => "older-linux",
        Fault::Recursion => "recursion",
        _ => "other",
    }
}
