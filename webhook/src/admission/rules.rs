//! The rules by name, and what becomes of what they find.

use std::fmt;
use std::str::FromStr;

use bindery_core::Rule;

/// A rule of the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DoorRule {
    /// One of the engine's.
    Engine(Rule),
    /// Policy Delete on a volume that a label marks as precious: which label that is only the operator knows,
    /// so no engine is asked.
    PreciousDeleted,
}

/// What becomes of what a rule finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// Nothing: nobody is told.
    Off,
    /// The request passes, and its author is warned.
    Warn,
    /// The request is denied.
    Deny,
}

/// The level of every rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels([Level; DoorRule::ALL.len()]);

/// A level that the operator sets, as `volume-too-small=warn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleLevel {
    rule: DoorRule,
    level: Level,
}

/// Why a text sets no level. Says what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleLevelError {
    /// It is not of the form `RULE=LEVEL`.
    #[error("{0:?} is not RULE=LEVEL, such as volume-too-small=warn")]
    Malformed(String),
    /// There is no such rule.
    #[error("there is no rule {0:?}; there are {names}", names = DoorRule::ALL.map(DoorRule::name).join(", "))]
    Rule(String),
    /// There is no such level.
    #[error("there is no level {0:?}; there are deny, warn, off")]
    Level(String),
    /// The rule tells of what binds all the same, so it cannot deny.
    #[error("rule {0} cannot deny, because what it tells of binds all the same; set it to warn or off")]
    NeverDenies(&'static str),
}

impl DoorRule {
    /// All of them: the engine's in the order of their numbers, then those of the door.
    pub const ALL: [Self; Rule::ALL.len() + 1] = {
        let mut all = [Self::PreciousDeleted; Rule::ALL.len() + 1];
        let mut at = 0;
        while at < Rule::ALL.len() {
            all[at] = Self::Engine(Rule::ALL[at]);
            at += 1;
        }
        all
    };

    /// Its name, as operators set its level and metrics count it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Engine(rule) => rule.name(),
            Self::PreciousDeleted => "precious-deleted",
        }
    }

    /// Its level unless the operator sets another (design section 7): denied is what cannot bind while the
    /// volume's spec stays as it is.
    pub const fn default_level(self) -> Level {
        match self {
            Self::Engine(rule) if rule.denies() => Level::Deny,
            Self::Engine(_) | Self::PreciousDeleted => Level::Warn,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Engine(rule) => rule as usize - 1,
            Self::PreciousDeleted => Rule::ALL.len(),
        }
    }
}

impl Level {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Deny, Self::Warn, Self::Off];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Deny => "deny",
        }
    }
}

impl Levels {
    /// The defaults, and over them what the operator sets: of one rule the last counts.
    pub fn new(set: impl IntoIterator<Item = RuleLevel>) -> Self {
        let mut levels = DoorRule::ALL.map(DoorRule::default_level);
        for RuleLevel { rule, level } in set {
            levels[rule.index()] = level;
        }
        Self(levels)
    }

    /// The same, but what would be denied is only warned of: for observe mode.
    #[must_use]
    pub fn only_warning(self) -> Self {
        Self(self.0.map(|level| level.min(Level::Warn)))
    }

    /// The level of a rule.
    pub fn of(&self, rule: DoorRule) -> Level {
        self.0[rule.index()]
    }
}

impl Default for Levels {
    fn default() -> Self {
        Self::new([])
    }
}

impl FromStr for RuleLevel {
    type Err = RuleLevelError;

    fn from_str(text: &str) -> Result<Self, RuleLevelError> {
        let (name, level) = text.split_once('=').ok_or_else(|| RuleLevelError::Malformed(text.to_owned()))?;
        let (name, level) = (name.trim(), level.trim());
        let rule = DoorRule::ALL.into_iter().find(|rule| rule.name() == name);
        let rule = rule.ok_or_else(|| RuleLevelError::Rule(name.to_owned()))?;
        let found = Level::ALL.into_iter().find(|known| known.name() == level);
        let level = found.ok_or_else(|| RuleLevelError::Level(level.to_owned()))?;
        if (rule, level) == (DoorRule::Engine(Rule::PairMismatch), Level::Deny) {
            return Err(RuleLevelError::NeverDenies(rule.name()));
        }
        Ok(Self { rule, level })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_place_and_a_name_of_its_own() {
        for (at, rule) in DoorRule::ALL.into_iter().enumerate() {
            assert_eq!(rule.index(), at, "{}", rule.name());
            let namesakes = DoorRule::ALL.into_iter().filter(|other| other.name() == rule.name());
            assert_eq!(namesakes.count(), 1, "{}", rule.name());
        }
    }

    #[test]
    fn the_last_level_that_is_set_counts_and_observe_mode_only_warns() {
        let set = ["volume-too-small=off", "volume-missing=deny", " volume-too-small = warn"];
        let levels = Levels::new(set.map(|text| text.parse().unwrap()));
        assert_eq!(levels.of(DoorRule::Engine(Rule::VolumeTooSmall)), Level::Warn);
        assert_eq!(levels.of(DoorRule::Engine(Rule::VolumeMissing)), Level::Deny);
        assert_eq!(levels.of(DoorRule::Engine(Rule::BreaksPair)), Level::Deny);
        let observing = levels.only_warning();
        assert!(DoorRule::ALL.into_iter().all(|rule| observing.of(rule) == Level::Warn));
    }

    #[test]
    fn a_bad_level_says_what_is_allowed() {
        for (text, said) in [
            ("volume-too-small", "volume-too-small=warn"),
            (
                "volume-to-small=warn",
                "there is no rule \"volume-to-small\"; there are volume-too-small, class-",
            ),
            ("volume-too-small=error", "there is no level \"error\"; there are deny, warn, off"),
            ("pair-mismatch=deny", "rule pair-mismatch cannot deny"),
        ] {
            let error = text.parse::<RuleLevel>().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
