//! The versions that the programs print: the version of erofs-utils first, because callers compare
//! it (kata requires at least 1.8.2), then the version of ferofs.

use std::sync::LazyLock;

use ferofs::build::COMPRESSORS;

/// The text after the name of the program. The first version is the version of erofs-utils with the
/// same options; `cargo xtask peers` shows whether a newer version exists. For programs that do not
/// list compressors.
pub(super) const PLAIN: &str = concat!("(erofs-utils) 1.9.4\nferofs ", env!("CARGO_PKG_VERSION"));
/// For `mkfs.erofs`.
pub(super) static MKFS: LazyLock<String> = LazyLock::new(|| listing("compressors"));
/// For `fsck.erofs`.
pub(super) static FSCK: LazyLock<String> = LazyLock::new(|| listing("decompressors"));
/// For `erofsfuse`, which does not print the name erofs-utils.
pub(super) const FUSE: &str = concat!("1.9.4\nferofs ", env!("CARGO_PKG_VERSION"));

fn listing(what: &str) -> String {
    PLAIN.replacen('\n', &format!("\navailable {what}: {COMPRESSORS}\n"), 1)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use ferofs::build::Params;
    use ferofs::read::Algorithm;

    use crate::cmd::Cli;

    /// The compiler does not see a name that is missing in a text.
    #[test]
    fn texts_name_each_algorithm() {
        let mut texts = vec![super::MKFS.clone(), super::FSCK.clone()];
        texts.push(crate::compat::mkfs::definition().render_help().to_string());
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands().cloned());
            let compress =
                command.get_arguments().filter(|argument| argument.get_id() == "compress");
            texts.extend(compress.filter_map(|argument| Some(argument.get_help()?.to_string())));
        }
        texts.retain(|text| !text.contains("`ferofs build --help` lists the values"));
        assert!(texts.len() > 3, "{texts:?}");
        for algorithm in Algorithm::ALL {
            let name = algorithm.name();
            assert_eq!(name.parse::<Params>().unwrap().algorithm, algorithm);
            assert!(texts.iter().all(|text| text.contains(name)), "{name}: {texts:#?}");
        }
    }
}
