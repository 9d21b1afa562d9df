//! Names of images in registries, as docker and containerd read them.

use std::fmt;

use url::Url;

use crate::http::is_this_machine;

/// The registry of names without one.
const DOCKER: &str = "docker.io";
/// The limits of the distribution specification.
const NAME_MAX: usize = 255;
const TAG_MAX: usize = 128;

/// An image in a registry: a host, a repository, and a tag or a digest, or both. The digest
/// decides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reference {
    /// The host, with a port if it has one.
    pub host: String,
    /// The repository: `library/debian`.
    pub repository: String,
    /// The tag. `latest` if the name has neither a tag nor a digest.
    pub tag: Option<String>,
    /// The digest of the manifest: `sha256:` and 64 hexadecimal digits.
    pub digest: Option<String>,
}

impl Reference {
    /// Parses `[HOST/]REPOSITORY[:TAG][@DIGEST]`.
    ///
    /// # Errors
    /// The problem.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        let (name, tag) = match name.rsplit_once(':') {
            // A colon before a slash is that of a port.
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (name, None),
        };
        let is_host = |host: &str| host.contains(['.', ':']) || host == "localhost";
        let (host, repository) = match name.split_once('/') {
            Some((host, repository)) if is_host(host) => (host, repository.to_owned()),
            Some(_) => (DOCKER, name.to_owned()),
            None => (DOCKER, format!("library/{name}")),
        };
        if !is_host_name(host) {
            return Err("the host's name is wrong");
        }
        if repository.len() > NAME_MAX || !repository.split('/').all(is_component) {
            return Err(
                "the repository's name is wrong: it has lower-case letters and digits, separated by . _ - and /",
            );
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err("the tag is wrong");
        }
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err("the digest is wrong: it is sha256: and 64 hexadecimal digits");
        }
        let tag = tag.map(str::to_owned).or_else(|| digest.is_none().then(|| "latest".to_owned()));
        Ok(Self { host: host.to_owned(), repository, tag, digest: digest.map(str::to_owned) })
    }

    /// The name of the manifest in requests: the digest, or else the tag.
    #[must_use]
    pub fn manifest(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or("latest")
    }

    /// The host of the registry: Docker's has another name than its images.
    pub(super) fn server(&self) -> &str {
        if self.host == DOCKER { "registry-1.docker.io" } else { &self.host }
    }

    /// Whether the registry is on this machine.
    pub(super) fn is_local(&self) -> bool {
        Url::parse(&format!("http://{}/", self.server())).is_ok_and(|url| is_this_machine(&url))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        self.digest.as_ref().map_or(Ok(()), |digest| write!(f, "@{digest}"))
    }
}

fn is_host_name(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, port))
            if !address.is_empty()
                && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':') =>
        {
            ("address", port)
        }
        Some(_) => return false,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port =
        port.strip_prefix(':').map_or(port.is_empty(), |port| port.parse::<u16>().is_ok());
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    is_port && name.split('.').all(is_label)
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
fn is_component(component: &str) -> bool {
    let is_end = |byte: Option<u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let is_separator =
        |run: &str| matches!(run, "" | "." | "_" | "__") || run.bytes().all(|byte| byte == b'-');
    is_end(component.bytes().next())
        && is_end(component.bytes().last())
        && component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()).all(is_separator)
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= TAG_MAX
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
}

/// Whether it is a digest that this program can check.
pub(super) fn is_digest(digest: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digest.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(is_hex))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_docker_reads_them() {
        let shown = |text: &str| Reference::parse(text).map(|reference| reference.to_string());
        assert_eq!(shown("debian").unwrap(), "docker.io/library/debian:latest");
        assert_eq!(shown("me/app:1").unwrap(), "docker.io/me/app:1");
        assert_eq!(shown("localhost/app").unwrap(), "localhost/app:latest");
        assert_eq!(shown("localhost:5000/app").unwrap(), "localhost:5000/app:latest");
        assert_eq!(shown("[::1]:5000/a/b:V1.0").unwrap(), "[::1]:5000/a/b:V1.0");
        let digest = format!("sha256:{}", "0a".repeat(32));
        let pinned = Reference::parse(&format!("ghcr.io/a/b__c-d:x@{digest}")).unwrap();
        assert_eq!((pinned.manifest(), pinned.tag.as_deref()), (digest.as_str(), Some("x")));
        assert_eq!(Reference::parse(&format!("ghcr.io/a@{digest}")).unwrap().tag, None);
        assert_eq!(Reference::parse("debian").unwrap().server(), "registry-1.docker.io");
        for local in [
            "localhost/a",
            "localhost:1/a",
            "LocalHost:1/a",
            "127.0.0.1:5000/a",
            "127.255.0.9/a",
            "[::1]:1/a",
            "[0:0:0:0:0:0:0:1]/a",
            "[::ffff:7f00:1]:5000/a",
        ] {
            assert!(Reference::parse(local).unwrap().is_local(), "{local}");
        }
        for other in [
            "localhost.example.org/a",
            "localhost.localdomain/a",
            "127.0.0.1.example.org/a",
            "127.example.org:5000/a",
            "127-0-0-1.example.org/a",
            "128.0.0.1/a",
            "10.0.0.1:5000/a",
            "0.0.0.0/a",
            "[::2]/a",
            "[::ffff:a00:1]/a",
            "[fe80::1]:5000/a",
        ] {
            assert!(!Reference::parse(other).unwrap().is_local(), "{other}");
        }
    }

    #[test]
    fn wrong_names() {
        let long = format!("h.x/{}", "a".repeat(256));
        let digests = ["h.x/a@sha256:12", "h.x/a@md5:00", "h.x/a@"];
        for wrong in [
            "",
            "h.x/",
            "h.x/A",
            "h.x/a//b",
            "h.x/../a",
            "h.x/a..b",
            "h.x/-a",
            "h.x/a:",
            "h.x/a:b c",
            "h.x/a?b",
            "h..x/a",
            "h.x:99999/a",
            "h.x:/a:b:c",
            "me@h.x/a",
        ]
        .into_iter()
        .chain(digests)
        .chain([long.as_str()])
        {
            assert!(Reference::parse(wrong).is_err(), "{wrong}");
        }
    }
}
