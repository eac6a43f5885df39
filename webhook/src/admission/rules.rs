//! The rules by name, and the level of each.

use std::fmt;
use std::str::FromStr;

use bindery_core::{Rule, named_cases};

/// A rule of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AdmissionRule {
    /// A rule of the engine.
    Engine(Rule),
    /// Policy Delete on a volume with the label for precious volumes. The label is a setting, so no engine
    /// checks it.
    PreciousDeleted,
}

named_cases! {
    /// What a finding of a rule does.
    Level {
        /// Nothing.
        Off = "off";
        /// The request passes with a warning.
        Warn = "warn";
        /// The request is denied.
        Deny = "deny";
    }
}

/// The level of every rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels([Level; AdmissionRule::ALL.len()]);

/// A setting such as `volume-too-small=warn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleLevel {
    rule: AdmissionRule,
    level: Level,
}

/// Why a text is not a setting of a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleLevelError {
    /// It is not of the form `RULE=LEVEL`.
    #[error("{0:?} is not RULE=LEVEL, such as volume-too-small=warn")]
    Malformed(String),
    /// There is no such rule.
    #[error(
        "there is no rule {0:?}; there are {names}",
        names = AdmissionRule::ALL.map(AdmissionRule::name).join(", ")
    )]
    Rule(String),
    /// There is no such level.
    #[error("there is no level {0:?}; there are deny, warn, off")]
    Level(String),
    /// The rule cannot deny, because the objects that it finds bind anyway.
    #[error("rule {0} cannot deny, because what it finds binds anyway; set it to warn or off")]
    NeverDenies(&'static str),
}

impl AdmissionRule {
    /// All rules: the engine's in their order, then [`AdmissionRule::PreciousDeleted`].
    pub const ALL: [Self; Rule::ALL.len() + 1] = {
        let mut all = [Self::PreciousDeleted; Rule::ALL.len() + 1];
        let mut at = 0;
        while at < Rule::ALL.len() {
            all[at] = Self::Engine(Rule::ALL[at]);
            at += 1;
        }
        all
    };

    /// The name in settings and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Engine(rule) => rule.name(),
            Self::PreciousDeleted => "precious-deleted",
        }
    }

    /// The default level: a rule denies an object that cannot bind while the volume's spec stays the same.
    pub const fn default_level(self) -> Level {
        match self {
            Self::Engine(rule) if rule.denies() => Level::Deny,
            Self::Engine(_) | Self::PreciousDeleted => Level::Warn,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Engine(rule) => rule as usize,
            Self::PreciousDeleted => Rule::ALL.len(),
        }
    }
}

impl Levels {
    /// The defaults with these settings. The last setting for a rule counts.
    pub fn new(set: impl IntoIterator<Item = RuleLevel>) -> Self {
        let mut levels = AdmissionRule::ALL.map(AdmissionRule::default_level);
        for RuleLevel { rule, level } in set {
            levels[rule.index()] = level;
        }
        Self(levels)
    }

    /// The same levels, with warnings instead of denials, for observe mode.
    #[must_use]
    pub fn only_warning(self) -> Self {
        Self(self.0.map(|level| level.min(Level::Warn)))
    }

    /// The level of a rule.
    pub fn of(&self, rule: AdmissionRule) -> Level {
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
        let rule = AdmissionRule::ALL.into_iter().find(|rule| rule.name() == name);
        let rule = rule.ok_or_else(|| RuleLevelError::Rule(name.to_owned()))?;
        let found = Level::ALL.into_iter().find(|known| known.name() == level);
        let level = found.ok_or_else(|| RuleLevelError::Level(level.to_owned()))?;
        if (rule, level) == (AdmissionRule::Engine(Rule::PairMismatch), Level::Deny) {
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
    fn every_rule_has_an_index_and_a_name_of_its_own() {
        for (at, rule) in AdmissionRule::ALL.into_iter().enumerate() {
            assert_eq!(rule.index(), at, "{}", rule.name());
            let namesakes = AdmissionRule::ALL.into_iter().filter(|other| other.name() == rule.name());
            assert_eq!(namesakes.count(), 1, "{}", rule.name());
        }
    }

    #[test]
    fn the_last_setting_counts_and_observe_mode_only_warns() {
        let set = ["volume-too-small=off", "volume-missing=deny", " volume-too-small = warn"];
        let levels = Levels::new(set.map(|text| text.parse().unwrap()));
        assert_eq!(levels.of(AdmissionRule::Engine(Rule::VolumeTooSmall)), Level::Warn);
        assert_eq!(levels.of(AdmissionRule::Engine(Rule::VolumeMissing)), Level::Deny);
        assert_eq!(levels.of(AdmissionRule::Engine(Rule::BreaksPair)), Level::Deny);
        let observing = levels.only_warning();
        assert!(AdmissionRule::ALL.into_iter().all(|rule| observing.of(rule) == Level::Warn));
    }

    #[test]
    fn an_invalid_setting_is_an_error_that_says_what_is_allowed() {
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
