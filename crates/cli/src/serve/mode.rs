//! The modes of a replica.

use bindery_controller::Mode;

/// The values of `--mode`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ModeArgument {
    /// Bind and reclaim; upstream's controller is off.
    Own,
    /// Write nothing; decide everything, and count where upstream's controller decides otherwise. Needs no
    /// Lease: every replica observes and counts for itself.
    Observe,
    /// Reserve a volume for each steered claim; upstream's controller, which is on, binds it.
    Steer,
}

impl ModeArgument {
    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Observe => "observe",
            Self::Steer => "steer",
        }
    }
}

impl From<ModeArgument> for Mode {
    fn from(argument: ModeArgument) -> Self {
        match argument {
            ModeArgument::Own => Self::Own,
            ModeArgument::Observe => Self::Observe,
            ModeArgument::Steer => Self::Steer,
        }
    }
}
