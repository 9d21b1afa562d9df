//! Lists of options, and what is wrong with an option.

/// Splits a list at its commas, except between quotation marks: SELinux labels contain commas, for example
/// `context="system_u:object_r:tmp_t:s0:c1,c2"`.
pub(crate) fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    list.split(move |c| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
}

/// Removes the quotation marks of `"a,b"`: they only mean that the comma does not separate options.
pub(crate) fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

/// An option with a wrong value, and what is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidOption(pub(crate) String, pub(crate) String);

impl std::fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "-o {}: {}", self.0, self.1)
    }
}

impl std::error::Error for InvalidOption {}
