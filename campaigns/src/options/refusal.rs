//! Reasons for which a command may refuse. Any other refusal is a finding.

/// What the message says, and the reason in short.
const KNOWN: &[(&str, &str)] = &[
];

/// The reason in short, if what the command said gives a known one.
pub(super) fn known(said: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(text, _)| said.contains(text)).map(|(_, reason)| *reason)
}
