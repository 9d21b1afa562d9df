//! Commands with two workers work with both.

use std::fs;

use ferofs_tests::{ferofs_path, need};

use crate::common::fixture::Fixture;
use crate::common::traced::{readers_at_a_time, slow_reads};

/// One worker, or a lock around the work of all, makes none of the gate's figures worse.
#[test]
fn two_workers_read_at_the_same_time() {
    let Some(strace) = need::tool("strace") else { return };
    let fixture = Fixture::empty();
    // A worker needs longer for a file than others need to find the next one.
    for number in 0..8 {
        let text = format!("content of file {number}\n").repeat(90_000);
        fixture.write(number.to_string(), text);
    }
    let (image, root) = fixture.build_sealed("image", &[]);
    let (source, log) = (fixture.source(), fixture.path("log"));
    let (source_name, image_name) = (source.to_str().unwrap(), image.to_str().unwrap());
    let output = fixture.path("output");
    let output = output.to_str().unwrap();
    for (command, read) in [
        (vec!["build", "--workers", "N", source_name, output], &source),
        (vec!["check", "--deep", "--workers", "N", image_name], &image),
        (vec!["extract", "--workers", "N", image_name, output], &image),
        (vec!["verity", "verify", "--threads", "N", image_name, &root], &image),
        (vec!["verity", "format", "--threads", "N", image_name], &image),
    ] {
        for workers in ["1", "2"] {
            let _ = fs::remove_file(output);
            let _ = fs::remove_dir_all(output);
            let words = command.iter().map(|word| if *word == "N" { workers } else { word });
            let run = slow_reads(&strace, ferofs_path(), &log).args(words).output().unwrap();
            assert!(run.status.success(), "{command:?}: {}", String::from_utf8_lossy(&run.stderr));
            assert_eq!(readers_at_a_time(&log, read).to_string(), workers, "{command:?}");
        }
    }
}
