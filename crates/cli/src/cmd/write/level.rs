//! The options `-0` to `-9` of `ferofs build`.

/// The level that one of the options `-0` to `-9` selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Level(pub(super) Option<u8>);

/// The options by their numbers.
const OPTIONS: [(char, &str); 10] = [
    ('0', "level0"),
    ('1', "level1"),
    ('2', "level2"),
    ('3', "level3"),
    ('4', "level4"),
    ('5', "level5"),
    ('6', "level6"),
    ('7', "level7"),
    ('8', "level8"),
    ('9', "level9"),
];

// By hand: ten flags that give one number.
impl clap::Args for Level {
    fn augment_args(command: clap::Command) -> clap::Command {
        let flags = OPTIONS.map(|(option, id)| {
            let flag = clap::Arg::new(id).short(option).action(clap::ArgAction::SetTrue).hide(option != '1');
            flag.help("Instead: -0 (stored) to -9 (smallest, slowest)")
                .long_help("Use a level instead of a preset: -0 (stored) to -9 (smallest, slowest). -z, -C and -E change it as they change a preset")
                .conflicts_with("preset")
        });
        let group = clap::ArgGroup::new("level").args(OPTIONS.map(|(_, id)| id));
        command.args(flags).group(group)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Level {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let number = OPTIONS.iter().zip(0..).find(|((_, id), _)| matches.get_flag(id));
        Ok(Self(number.map(|(_, number)| number)))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
