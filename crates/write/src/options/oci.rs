//! Which image of an OCI image layout to build from.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// Selects one image of a layout that has several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OciOptions {
    /// The image's platform; `None`: that of this machine, unless the layout has only one image.
    pub platform: Option<Platform>,
    /// The image's name in the layout: its annotation `org.opencontainers.image.ref.name`.
    pub name: Option<String>,
}

/// The system that an image is made for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Platform {
    /// The operating system, as Go calls it: `linux`.
    pub os: String,
    /// The processor, as Go calls it: `amd64`, `arm64`.
    pub architecture: String,
    /// The processor's variant: `v7` of `arm`.
    pub variant: Option<String>,
}

impl Platform {
    /// The platform of this machine.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "x86" => "386",
            "aarch64" => "arm64",
            "loongarch64" => "loong64",
            "powerpc64" => "ppc64le",
            other => other,
        };
        Self { os: "linux".to_owned(), architecture: architecture.to_owned(), variant: None }
    }

    /// Whether this platform is `wanted`. A `wanted` platform without a variant accepts every
    /// variant.
    pub(crate) fn is(&self, wanted: &Self) -> bool {
        self.os == wanted.os
            && self.architecture == wanted.architecture
            && (wanted.variant.is_none() || self.variant == wanted.variant)
    }
}

impl FromStr for Platform {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('/').map(str::to_owned);
        let platform = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(os), Some(architecture), variant, None) => Self { os, architecture, variant },
            _ => return Err("not OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, such as linux/arm64"),
        };
        Ok(platform)
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.as_ref().map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}
