//! The error of settings that are text: [`Settings`](crate::Settings).

use ferofs_codec::{ParamsError, compressor_names};

/// An option that is unknown, has a wrong value, or needs another option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option}{}{value}: {problem}", if value.is_empty() { "" } else { " " })]
pub struct SettingsError {
    /// The option.
    pub option: &'static str,
    /// Its value, or the part of it that is wrong.
    pub value: String,
    /// The problem.
    pub problem: SettingsProblem,
}

impl SettingsError {
    pub(crate) fn new(option: &'static str, value: &str, problem: SettingsProblem) -> Self {
        Self { option, value: value.to_owned(), problem }
    }
}

/// Why a setting is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsProblem {
    /// A compressor is wrong.
    #[error(transparent)]
    Params(#[from] ParamsError),
    /// There is no such feature.
    #[error("unknown extended option")]
    UnknownFeature,
    /// `--compress-large none`.
    #[error(
        "takes {}, not none: --compress-hints with the size 0 stores files uncompressed",
        compressor_names().join(", ")
    )]
    NotNone,
    /// Anything else.
    #[error("{0}")]
    Wrong(&'static str),
}
