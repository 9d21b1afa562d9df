//! `cargo xtask bench codec [--publish] [OPTION]...`: the codecs alone, in memory: starts
//! `crates/codec/benches` with the options. `--publish` measures all codecs, and writes the range
//! of each level.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use clap::Args;
use ferofs_devtools::{install, shell};
use ferofs_tests::need;

use crate::common::report::{Report, Table};
use crate::trees::packages;

/// Codecs, and the MiB of each sample: slow codecs get less.
const CODECS: [(&str, &str); 4] = [("lz4", "4"), ("zstd", "16"), ("deflate", "16"), ("lzma", "4")];

/// Speeds and sizes as multiples of the other library's, by codec and level.
type Ratios = BTreeMap<(String, String), Vec<[f64; 2]>>;

#[derive(Args)]
pub(crate) struct CodecArgs {
    /// Measure all codecs, and write the range of each level
    #[arg(long, exclusive = true)]
    publish: bool,
    /// Options of crates/codec/benches: --only CODEC, --mib N
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    options: Vec<String>,
}

pub(crate) fn codec(args: &CodecArgs) -> Result<()> {
    // The Linux source is one of the samples. Systems without apt-get measure the other samples.
    if packages::archive().is_err() && need::find_tool("apt-get").is_some() {
        install::install_package("linux-source")?;
    }
    let bench = ["bench", "--package", "ferofs-codec", "--features", "liblz4-encode", "--"];
    if !args.publish {
        return shell::run(shell::cargo().args(bench).args(&args.options));
    }
    let report = Report::new::<&str>("codec", &[])?;
    let mut ratios = Ratios::new();
    for (name, mib) in CODECS {
        let mut command = shell::cargo();
        let output = command
            .args(bench)
            .args(["--only", name, "--mib", mib])
            .stderr(Stdio::inherit())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        print!("{text}");
        if !output.status.success() {
            bail!("{command:?}: {}", output.status);
        }
        add(&text, name, &mut ratios)?;
    }
    let about = "the shortest of three turns of each program.";
    report.publish(about, table(&ratios)?, 1, 2)
}

/// Adds the lines of one codec: sample, codec, level, size of the output, speed and bytes of ours
/// and of theirs, ratios.
fn add(text: &str, codec: &str, ratios: &mut Ratios) -> Result<()> {
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, name, level, _, _, _, _, _, speed, size, ..] = words.as_slice()
            && *name == codec
        {
            let pair = [speed.parse()?, size.parse()?];
            ratios.entry((codec.to_owned(), (*level).to_owned())).or_default().push(pair);
        }
    }
    Ok(())
}

/// The slowest first.
fn table(ratios: &Ratios) -> Result<Table> {
    let mut rows = Vec::new();
    for ((codec, level), pairs) in ratios {
        let range = |number: usize, digits: usize| {
            let values = pairs.iter().map(|pair| pair[number]);
            let (min, max) = (values.clone().fold(f64::MAX, f64::min), values.fold(0.0, f64::max));
            (min, format!("{min:.digits$} to {max:.digits$}"))
        };
        let (slowest, speed) = range(0, 2);
        rows.push((slowest, vec![codec.clone(), level.clone(), speed, range(1, 3).1]));
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    rows.first().context("nothing was measured")?;
    Ok(Table {
        title: "Speed and size".into(),
        text: "Speed is ours divided by the other's, so above 1 ours is faster; size is ours divided by the other's, so below 1 ours is smaller. Each \
               range covers binaries, documentation and kernel source, and outputs of 4 KiB to 1 MiB."
            .into(),
        head: vec!["codec", "level", "speed", "size"],
        rows: rows.into_iter().map(|(_, row)| row).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_codec_become_a_range() {
        let text = "data     codec    lvl  output ours MB/s      bytes peer MB/s      bytes   speed     size\n\
                    bin      lz4        9     4K     130.0       1000     100.0       1010    1.30   0.9901  in place\n\
                    doc      lz4        9    64K      90.0       1000     100.0       1000    0.90   1.0000\n\
                    bin      zstd       9    64K      90.0       1000     100.0       1000    0.10   1.0000\n";
        let mut ratios = Ratios::new();
        add(text, "lz4", &mut ratios).unwrap();
        assert_eq!(table(&ratios).unwrap().rows, [["lz4", "9", "0.90 to 1.30", "0.990 to 1.000"]]);
    }
}
