//! Credentials that docker and podman keep for registries: in their files, and in the programs that
//! the files name.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::reference::Reference;
use crate::error::{Error, Result};

/// The credentials of a user at a registry.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    /// A user and a password.
    User(String, String),
    /// A refresh token (OAuth 2), with which tokens are asked for.
    Identity(String),
}

/// The part of the files that is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    auths: BTreeMap<String, Entry>,
    #[serde(rename = "credsStore")]
    store: Option<String>,
    #[serde(rename = "credHelpers")]
    helpers: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

/// The output of a helper.
#[derive(Deserialize)]
struct Helped {
    #[serde(rename = "Username")]
    user: String,
    #[serde(rename = "Secret")]
    secret: String,
}

/// The largest output of a helper that is read, in bytes.
const HELPED_MAX: u64 = 1 << 20;

/// The credentials for a repository: in `file`, or else in the files of podman and docker. `None`:
/// anonymous.
///
/// # Errors
/// [`Error::Credentials`] for files that cannot be read or parsed, and helpers that fail.
pub(super) fn find(reference: &Reference, file: Option<&Path>) -> Result<Option<Credentials>> {
    let asked = file.map(Path::to_owned).or_else(|| path_in("REGISTRY_AUTH_FILE"));
    if let Some(asked) = asked {
        return find_in(reference, &asked, true);
    }
    for file in credential_files() {
        if let Some(found) = find_in(reference, &file, false)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The files in which podman, skopeo and docker keep the credentials of this user, in the order of
/// containers-auth.json(5). They are there only after a login.
#[must_use]
pub fn credential_files() -> Vec<PathBuf> {
    default_files(path_in)
}

/// The path in this environment variable.
fn path_in(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn default_files(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let home = |inner: &str| variable("HOME").map(|home| home.join(inner));
    // Other users may not look into the folder that podman of root makes.
    let of_user = || {
        let folder =
            Path::new("/run/containers").join(rustix::process::geteuid().as_raw().to_string());
        std::fs::read_dir(&folder).is_ok().then_some(folder)
    };
    let files = [
        variable("XDG_RUNTIME_DIR").map(|dir| dir.join("containers")).or_else(of_user),
        variable("XDG_CONFIG_HOME").or_else(|| home(".config")).map(|dir| dir.join("containers")),
    ];
    let docker =
        variable("DOCKER_CONFIG").or_else(|| home(".docker")).map(|dir| dir.join("config.json"));
    files.into_iter().flatten().map(|dir| dir.join("auth.json")).chain(docker).collect()
}

fn find_in(reference: &Reference, path: &Path, must_exist: bool) -> Result<Option<Credentials>> {
    let wrong = |problem: String| Error::Credentials { path: path.into(), problem };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !must_exist => {
            return Ok(None);
        }
        Err(error) => return Err(wrong(error.to_string())),
    };
    // The message of the parser could have a part of a password.
    let file: File = serde_json::from_str(&text).map_err(|error| {
        wrong(format!("line {}: is not a configuration of registries", error.line()))
    })?;
    let names = names(reference);
    let helper = names.iter().find_map(|name| file.helpers.get(name));
    if let Some(helper) = helper {
        return ask_helper(helper, &names);
    }
    let entry = file.auths.iter().filter_map(|(key, entry)| {
        let key = normalized(key);
        names.iter().position(|name| *name == key).map(|rank| (rank, entry))
    });
    let entry = entry.min_by_key(|(rank, _)| *rank).map(|(_, entry)| entry);
    match entry.map(credentials).transpose().map_err(|problem| wrong(problem.into()))?.flatten() {
        Some(found) => Ok(Some(found)),
        None => file.store.as_ref().map_or(Ok(None), |store| ask_helper(store, &names)),
    }
}

/// The keys under which the files have a repository, the longest first: `host/a/b`, `host/a`,
/// `host`.
fn names(reference: &Reference) -> Vec<String> {
    let full = format!("{}/{}", reference.host, reference.repository);
    let mut names: Vec<String> =
        full.match_indices('/').map(|(at, _)| full[..at].to_owned()).collect();
    names.push(full.clone());
    names.reverse();
    if reference.host == "docker.io" {
        names.push("index.docker.io".into());
    }
    names
}

/// A key without what docker adds: `https://index.docker.io/v1/`.
fn normalized(key: &str) -> String {
    let key = key.trim_start_matches("https://").trim_start_matches("http://");
    let key = key.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches("/v2");
    key.to_owned()
}

fn credentials(entry: &Entry) -> Result<Option<Credentials>, &'static str> {
    if let Some(token) = entry.identitytoken.as_ref().filter(|token| !token.is_empty()) {
        return Ok(Some(Credentials::Identity(token.clone())));
    }
    if let (Some(user), Some(password)) = (&entry.username, &entry.password) {
        return Ok(Some(Credentials::User(user.clone(), password.clone())));
    }
    let Some(auth) = entry.auth.as_ref().filter(|auth| !auth.is_empty()) else { return Ok(None) };
    let decoded = STANDARD.decode(auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let decoded = decoded.ok_or("has an entry `auth` that is not base64")?;
    let (user, password) = decoded.split_once(':').ok_or("has an entry `auth` without a colon")?;
    Ok(Some(Credentials::User(user.to_owned(), password.trim_end_matches('\0').to_owned())))
}

/// Asks `docker-credential-NAME`.
fn ask_helper(name: &str, servers: &[String]) -> Result<Option<Credentials>> {
    let program = format!("docker-credential-{name}");
    let wrong = |problem: String| Error::Credentials { path: program.clone().into(), problem };
    // The name comes from a file of the user; a path would start any program.
    if name.is_empty() || name.contains('/') {
        return Err(wrong("is not the name of a helper".into()));
    }
    for server in servers.iter().rev().map(|server| match server.as_str() {
        // The key of docker's own registry.
        "docker.io" | "index.docker.io" => "https://index.docker.io/v1/",
        other => other,
    }) {
        let mut command = Command::new(&program);
        command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| wrong(error.to_string()))?;
        if let Some(mut input) = child.stdin.take() {
            // A helper that does not read fails by its status.
            let _ = writeln!(input, "{server}");
        }
        let mut output = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout
                .take(HELPED_MAX)
                .read_to_end(&mut output)
                .map_err(|error| wrong(error.to_string()))?;
        }
        let status = child.wait().map_err(|error| wrong(error.to_string()))?;
        if !status.success() {
            // "credentials not found": anonymous.
            continue;
        }
        let helped: Helped =
            serde_json::from_slice(&output).map_err(|_| wrong("printed no credentials".into()))?;
        return Ok(Some(match helped.user.as_str() {
            "<token>" => Credentials::Identity(helped.secret),
            _ => Credentials::User(helped.user, helped.secret),
        }));
    }
    Ok(None)
}
