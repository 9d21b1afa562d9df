//! How much of a cluster a decoder returns.

/// The part of a cluster that the caller wants decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    /// The whole cluster: the output's length must equal the decoded length.
    Whole,
    /// The first bytes, as many as the output holds. The decoder neither decodes nor checks the rest.
    Prefix,
}
