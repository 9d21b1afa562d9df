//! Settings of the AWS command line: environment variables, and the files `config` and
//! `credentials` with their profiles.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::{Error, Result};

/// Reads an environment variable. Tests replace it.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Settings of a profile, by the names that both files use.
#[derive(Debug, Default)]
pub(super) struct Profile {
    values: BTreeMap<String, String>,
}

/// The variable, if it is not empty.
pub(super) fn variable(variables: Variables<'_>, name: &str) -> Option<String> {
    variables(name).filter(|value| !value.trim().is_empty())
}

impl Profile {
    /// Reads the profile `name`, or the one that `AWS_PROFILE` names, or `default`.
    ///
    /// # Errors
    /// [`Error::Credentials`] for files that cannot be read, and for a profile that was asked for
    /// and does not exist.
    pub(super) fn read(name: Option<&str>, variables: Variables<'_>) -> Result<Self> {
        let asked = name.map(str::to_owned).or_else(|| variable(variables, "AWS_PROFILE"));
        let name = asked.as_deref().unwrap_or("default");
        let file = |set: &str, default: &str| {
            let home = || {
                variable(variables, "HOME")
                    .map(|home| PathBuf::from(home).join(".aws").join(default))
            };
            variable(variables, set).map(PathBuf::from).or_else(home)
        };
        let config = file("AWS_CONFIG_FILE", "config");
        let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        let mut profile = Self::default();
        let mut is_found = false;
        // The second file has precedence.
        for (path, prefix) in [(&config, "profile "), (&credentials, "")] {
            let Some(path) = path else { continue };
            let text = match std::fs::read_to_string(path) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => {
                    return Err(Error::Credentials {
                        path: path.clone(),
                        problem: error.to_string(),
                    });
                }
            };
            is_found |= profile.add(&text, name, prefix);
        }
        if let (false, Some(asked), Some(path)) = (is_found, &asked, config.or(credentials)) {
            return Err(Error::Credentials { path, problem: format!("has no profile {asked}") });
        }
        Ok(profile)
    }

    /// Adds the settings of a section. Returns whether the file has it.
    fn add(&mut self, text: &str, name: &str, prefix: &str) -> bool {
        let mut is_found = false;
        let mut is_meant = false;
        for line in text.lines() {
            // Indented lines belong to nested settings, which are not used.
            if line.starts_with([' ', '\t', '#', ';']) {
                continue;
            }
            if let Some(section) =
                line.trim().strip_prefix('[').and_then(|line| line.strip_suffix(']'))
            {
                let section = section.trim();
                let section = section
                    .strip_prefix(prefix)
                    .map(str::trim)
                    .or((section == "default").then_some(section));
                is_meant = section == Some(name);
                is_found |= is_meant;
            } else if let Some((key, value)) = line.split_once('=').filter(|_| is_meant) {
                self.values.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
            }
        }
        is_found
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_of_both_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(
            path("config"),
            "[default]\nregion = eu-west-1\n[profile work]\nregion=us-east-2\nendpoint_url = http://127.0.0.1:9000\ns3 =\n  region = nested\n",
        )
        .unwrap();
        std::fs::write(
            path("credentials"),
            "# comment\n[default]\naws_access_key_id = A\n[work]\naws_access_key_id = B\naws_secret_access_key=s=1\n",
        )
        .unwrap();
        let config = path("config").display().to_string();
        let credentials = path("credentials").display().to_string();
        let read = |name: Option<&str>, set: Option<&str>| {
            Profile::read(name, &|variable| match variable {
                "AWS_CONFIG_FILE" => Some(config.clone()),
                "AWS_SHARED_CREDENTIALS_FILE" => Some(credentials.clone()),
                "AWS_PROFILE" => set.map(str::to_owned),
                _ => None,
            })
        };
        let default = read(None, None).unwrap();
        assert_eq!(
            (default.get("region"), default.get("aws_access_key_id")),
            (Some("eu-west-1"), Some("A"))
        );
        assert_eq!(default.get("aws_secret_access_key"), None);
        for work in [read(Some("work"), Some("other")).unwrap(), read(None, Some("work")).unwrap()]
        {
            assert_eq!(
                (work.get("region"), work.get("aws_access_key_id")),
                (Some("us-east-2"), Some("B"))
            );
            assert_eq!(work.get("aws_secret_access_key"), Some("s=1"));
            assert_eq!(work.get("endpoint_url"), Some("http://127.0.0.1:9000"));
        }
        let missing = read(Some("none"), None).unwrap_err().to_string();
        assert!(missing.contains("has no profile none"), "{missing}");
        assert!(Profile::read(None, &|_| None).unwrap().get("region").is_none());
    }
}
