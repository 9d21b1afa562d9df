//! `cargo xtask bench terminal`: runs some commands in a terminal, and draws what the terminal
//! shows: the first picture of README.md.
//!
//! Nothing is written by hand: the commands run in a pseudo-terminal (`script`), their output is
//! recorded with its escape sequences (docs/pictures/terminal.json), and a terminal emulator says
//! what they leave on the screen.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use ferofs_devtools::svg::{Picture, Style, Theme};
use ferofs_devtools::{install, shell};
use ferofs_tests::need;
use serde::{Deserialize, Serialize};
use vt100::{Color, Parser};

use crate::trees;

/// The recorded output.
const RECORD: &str = "docs/pictures/terminal.json";
/// Columns of the terminal: the longest line of the output fits, and the picture can be read on a
/// telephone.
const COLUMNS: u16 = 70;
/// Lines of one command; more would make the picture too long to look at.
const LINES: u16 = 24;
/// Size of the font, width of a column and height of a line, in pixels.
const FONT: f64 = 13.0;
const COLUMN: f64 = 7.93;
const LINE: f64 = 18.0;
/// Space around the text.
const MARGIN: f64 = 16.0;

/// What is shown; each command fits in a line. The folder `rootfs` is a small Debian; `next` is the
/// same with one changed file.
const COMMANDS: [&str; 10] = [
    "du -sh rootfs",
    "ferofs build rootfs rootfs.erofs",
    "ferofs check --deep rootfs.erofs",
    "ferofs mount rootfs.erofs mnt",
    "head -n 1 mnt/etc/os-release",
    "ferofs umount mnt",
    "ferofs patch create rootfs.erofs next -o update.patch",
    "ferofs patch apply rootfs.erofs update.patch",
    "ferofs patch log rootfs.erofs",
    "ferofs diff rootfs.erofs next && echo same",
];

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Step {
    command: String,
    /// With escape sequences.
    output: String,
}

#[derive(Args)]
pub(crate) struct TerminalArgs {
    /// Write it and its picture to docs/pictures
    #[arg(long)]
    publish: bool,
    /// Make the picture from what is published
    #[arg(long, conflicts_with = "publish")]
    draw: bool,
}

pub(crate) fn terminal(TerminalArgs { publish, draw }: &TerminalArgs) -> Result<()> {
    let repository = shell::repository();
    if *publish {
        fs::write(repository.join(RECORD), serde_json::to_string_pretty(&record()?)? + "\n")?;
    }
    if *publish || *draw {
        return draw_all(repository);
    }
    record()?.iter().for_each(|step| println!("$ {}\n{}", step.command, step.output.trim_end()));
    Ok(())
}

fn record() -> Result<Vec<Step>> {
    if !need::is_root() {
        bail!("debootstrap and mounts need root");
    }
    install::install(&[install::DEBOOTSTRAP, install::FUSE])?;
    let debian = trees::named("container")?.get()?;
    let dir = ferofs_tests::scratch();
    for name in ["rootfs", "next"] {
        shell::run(Command::new("cp").arg("-a").args([debian.as_path(), &dir.path().join(name)]))?;
    }
    fs::write(dir.path().join("next/etc/motd"), "Welcome to the next version.\n")?;
    fs::create_dir(dir.path().join("mnt"))?;
    let ferofs = shell::build_ferofs("release")?;
    let programs = ferofs.parent().context("ferofs has no directory")?;
    COMMANDS
        .iter()
        .map(|command| {
            Ok(Step { command: (*command).into(), output: run(command, dir.path(), programs)? })
        })
        .collect()
}

/// Runs a command in a pseudo-terminal.
fn run(command: &str, dir: &Path, programs: &Path) -> Result<String> {
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let size = format!("stty cols {COLUMNS} rows {LINES}; {command}");
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &size, "/dev/null"])
        .current_dir(dir)
        .env("PATH", path)
        .env("TERM", "xterm-256color")
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::null())
        .output()
        .context("script")?;
    let text = String::from_utf8(output.stdout).context("the output is not UTF-8")?;
    if !output.status.success() {
        bail!("{command}: {}: {text}", output.status);
    }
    Ok(text)
}

fn draw_all(repository: &Path) -> Result<()> {
    let steps: Vec<Step> = serde_json::from_str(&fs::read_to_string(repository.join(RECORD))?)?;
    for (theme, name) in Theme::ALL {
        let picture = draw(&steps, theme);
        let overlaps = picture.overlaps();
        if !overlaps.is_empty() {
            bail!("the terminal: {overlaps:#?}");
        }
        fs::write(repository.join(format!("docs/pictures/terminal-{name}.svg")), picture.finish())?;
    }
    Ok(())
}

/// A piece of a line in one style.
type Piece = (u16, String, Style);

fn draw(steps: &[Step], theme: Theme) -> Picture {
    let mut lines: Vec<Vec<Piece>> = Vec::new();
    for step in steps {
        let prompt = Style::new(FONT, theme.pick("#1a7f37", "#3fb950")).bold().mono();
        let typed = Style::new(FONT, theme.text()).bold().mono();
        lines.push(vec![(0, "$".into(), prompt), (2, step.command.clone(), typed)]);
        lines.extend(screen(&step.output, theme));
    }
    let width = 2.0 * MARGIN + f64::from(COLUMNS) * COLUMN;
    let height = 2.0 * MARGIN + lines.len() as f64 * LINE;
    let mut picture = Picture::new(
        width,
        height,
        theme,
        "A terminal: ferofs builds, checks, mounts and patches an image",
    );
    for (number, line) in lines.iter().enumerate() {
        let y = MARGIN + (number as f64 + 0.75) * LINE;
        for (column, text, style) in line {
            picture.text(MARGIN + f64::from(*column) * COLUMN, y, *style, text);
        }
    }
    picture
}

/// What the output leaves on an empty screen.
fn screen(output: &str, theme: Theme) -> Vec<Vec<Piece>> {
    let mut parser = Parser::new(LINES, COLUMNS, 0);
    parser.process(output.as_bytes());
    let screen = parser.screen();
    let mut lines: Vec<Vec<Piece>> = (0..LINES)
        .map(|row| {
            let mut pieces: Vec<Piece> = Vec::new();
            for column in 0..COLUMNS {
                let Some(cell) = screen.cell(row, column).filter(|cell| cell.has_contents()) else {
                    continue;
                };
                let mut style = Style::new(FONT, colour(cell.fgcolor(), cell.dim(), theme)).mono();
                style.bold = cell.bold();
                let continues = pieces.last_mut().filter(|(at, text, last)| {
                    *at as usize + text.chars().count() == usize::from(column)
                        && (last.colour, last.bold) == (style.colour, style.bold)
                });
                match continues {
                    Some((_, text, _)) => text.push_str(cell.contents()),
                    None => pieces.push((column, cell.contents().to_owned(), style)),
                }
            }
            pieces
        })
        .collect();
    while lines.last().is_some_and(Vec::is_empty) {
        lines.pop();
    }
    lines
}

fn colour(colour: Color, dim: bool, theme: Theme) -> &'static str {
    match colour {
        Color::Idx(1 | 9) => theme.pick("#cf222e", "#f85149"),
        Color::Idx(2 | 10) => theme.pick("#1a7f37", "#3fb950"),
        Color::Idx(3 | 11) => theme.pick("#9a6700", "#d29922"),
        Color::Idx(4 | 12) => theme.pick("#0969da", "#4493f8"),
        Color::Idx(5 | 13) => theme.pick("#8250df", "#ab7df8"),
        Color::Idx(6 | 14) => theme.pick("#1b7c83", "#39c5cf"),
        _ if dim => theme.muted(),
        _ => theme.text(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stays_on_the_screen_is_drawn() {
        let lines = screen("10 %\r\x1b[2K\x1b[32mdone\x1b[0m in 1 s\r\n", Theme::Light);
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        let texts: Vec<&str> = line.iter().map(|(_, text, _)| text.as_str()).collect();
        assert_eq!(texts, ["done", " in 1 s"]);
        assert_eq!(line[0].2.colour, "#1a7f37");
    }

    #[test]
    fn the_pictures_are_those_of_the_recorded_output() {
        let repository = shell::repository();
        let steps: Vec<Step> =
            serde_json::from_str(&fs::read_to_string(repository.join(RECORD)).unwrap()).unwrap();
        assert_eq!(steps.iter().map(|step| step.command.as_str()).collect::<Vec<_>>(), COMMANDS);
        assert!(COMMANDS.iter().all(|command| command.len() <= usize::from(COLUMNS) - 2));
        for (theme, name) in Theme::ALL {
            let published =
                fs::read_to_string(repository.join(format!("docs/pictures/terminal-{name}.svg")))
                    .unwrap();
            assert!(
                draw(&steps, theme).finish() == published,
                "run cargo xtask bench terminal --draw"
            );
        }
    }
}
