use super::*;

const CELL: Figures =
    [Some(1_000_000_000), Some(9_000_000), Some(40 << 20), Some(10_000), None, Some(500)];

fn file() -> AcceptedFile {
    let accepted = Accepted { figures: CELL, why: "first values".into() };
    AcceptedFile {
        machine: "rustc 1".into(),
        cells: BTreeMap::from([("build lz4".into(), accepted)]),
    }
}

fn with(number: usize, value: u64) -> Figures {
    let mut figures = CELL;
    figures[number] = Some(value);
    figures
}

#[test]
fn the_file_is_read_as_it_was_written() {
    assert_eq!(AcceptedFile::parse(&file().text()).unwrap(), file());
    let line = file().text().lines().last().unwrap().to_owned();
    assert_eq!(line, "build lz4\t1000000000\t9000000\t41943040\t10000\t-\t500\tfirst values");
    for wrong in ["x", "x\t1\twhy", &line.replace("500", "many"), &format!("{line}\n{line}")] {
        assert!(AcceptedFile::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn values_beyond_the_tolerance_are_worse_or_better() {
    let verdict = |number: usize, value| {
        file().compare("build lz4", "rustc 1", &with(number, value))[number].unwrap()
    };
    let cases = [
        (0, 1_020_000_000, Verdict::Same),
        (0, 1_020_000_001, Verdict::Worse),
        (0, 979_999_999, Verdict::Better),
        (2, 42 << 20, Verdict::Same),
        (2, 43 << 20, Verdict::Worse),
        (3, 10_050, Verdict::Same),
        (3, 10_051, Verdict::Worse),
        // The floor is more than 2 % of 500.
        (5, 540, Verdict::Same),
        (5, 541, Verdict::Worse),
    ];
    for (number, value, expected) in cases {
        assert_eq!(verdict(number, value), expected, "{} {value}", METRICS[number].name);
    }
    let mut mounts = file();
    mounts.cells = BTreeMap::from([("mount dense".into(), mounts.cells["build lz4"].clone())]);
    let mounts = [1_060_000_000, 1_060_000_001]
        .map(|value| mounts.compare("mount dense", "rustc 1", &with(0, value))[0].unwrap());
    assert_eq!(mounts, [Verdict::Same, Verdict::Worse]);
    // A value that comes or goes is not a change of cost: someone changed the cell.
    assert_eq!(file().compare("build lz4", "rustc 1", &with(4, 1))[4], Some(Verdict::Worse));
    assert_eq!(file().compare("other", "rustc 1", &CELL), [None; METRICS.len()]);
}

#[test]
fn instructions_of_another_compiler_are_not_compared() {
    let twice = with(0, 2_000_000_000);
    assert_eq!(file().compare("build lz4", "rustc 2", &twice)[0], None);
    let mut accepted = file();
    accepted.accept("rustc 2", &BTreeMap::from([("build lz4".into(), twice)]), "x");
    assert_eq!(accepted.cells["build lz4"], Accepted { figures: twice, why: "x".into() });
    assert_eq!(accepted.machine, "rustc 2");
}

#[test]
fn small_changes_keep_the_accepted_value() {
    let mut accepted = file();
    accepted.accept(
        "rustc 1",
        &BTreeMap::from([("build lz4".into(), with(0, 1_015_000_000))]),
        "x",
    );
    assert_eq!(accepted, file());
    let (worse, new) = (with(0, 1_030_000_000), with(3, 7));
    let measured = BTreeMap::from([("build lz4".into(), worse), ("new".into(), new)]);
    accepted.accept("rustc 1", &measured, "x");
    assert_eq!(accepted.cells["build lz4"], Accepted { figures: worse, why: "x".into() });
    assert_eq!(accepted.cells["new"].figures, new);
}
