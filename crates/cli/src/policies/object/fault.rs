//! Why objects are not ready.

use bindery_core::named_cases;

/// Most characters of a fault in a status. Modules and registries choose some of them. The API server refuses
/// a status that is too large, and the old one would stay.
const TOLD_MAX: usize = 4_096;
/// What the compiler says of a cache that has too little room beside what is in use.
const NO_ROOM: &str = "the compiled components in use are";

/// Why a generation is not ready.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) cause: Cause,
    pub(crate) why: String,
}

named_cases! {
    /// The cause of a [`Fault`]; its name is the reason of the condition `Ready`.
    Cause {
        /// The module is being read or compiled.
        Loading = "Loading";
        /// There are more objects than are loaded, or than the cache has room for.
        TooMany = "TooMany";
        /// The object breaks a rule of documents.
        Invalid = "Invalid";
        /// The module could not be read.
        ModuleUnavailable = "ModuleUnavailable";
        /// The trusted keys have not signed the module.
        SignatureInvalid = "SignatureInvalid";
        /// The compiler failed, or the module could not be loaded or tried, and not because of what the
        /// module is. It is tried again.
        CompilerFailed = "CompilerFailed";
        /// The module is not a component of this kind, or it failed.
        ModuleInvalid = "ModuleInvalid";
        /// The module does not accept the settings.
        SettingsInvalid = "SettingsInvalid";
        /// The module failed at objects that are made up.
        TrialFailed = "TrialFailed";
        /// The first calls of the module failed.
        RolledBack = "RolledBack";
        /// The first calls of the module failed, and it stays, because the generation before cannot be
        /// loaded.
        ProbationFailed = "ProbationFailed";
    }
}

impl Fault {
    /// The same fault, cut to what a status may have.
    pub(super) fn shortened(mut self) -> Self {
        if let Some((end, _)) = self.why.char_indices().nth(TOLD_MAX) {
            self.why.replace_range(end.., "…");
        }
        self
    }

    /// Whether another try may succeed although nothing has changed. Where the module is in a ConfigMap, its
    /// change loads the object again.
    pub(super) fn may_pass(&self, has_config_map: bool) -> bool {
        match self.cause {
            Cause::Loading | Cause::CompilerFailed => true,
            Cause::ModuleUnavailable | Cause::SignatureInvalid => !has_config_map,
            _ => false,
        }
    }

    /// Whether the cache has too little room for the module beside what is in use.
    pub(super) fn lacks_room(&self) -> bool {
        self.cause == Cause::CompilerFailed && self.why.contains(NO_ROOM)
    }

    /// The field that is at fault.
    pub(crate) fn field(&self) -> &'static str {
        match self.cause {
            Cause::SettingsInvalid => "spec.settings",
            Cause::ModuleInvalid
            | Cause::ModuleUnavailable
            | Cause::CompilerFailed
            | Cause::SignatureInvalid
            | Cause::TrialFailed
            | Cause::RolledBack
            | Cause::ProbationFailed
            | Cause::Loading => "spec.module",
            Cause::TooMany => "spec.mode",
            Cause::Invalid => "spec",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_another_try_may_not_find_again_is_tried_again() {
        for (cause, expected) in [
            (Cause::CompilerFailed, [true, true]),
            (Cause::ModuleUnavailable, [true, false]),
            (Cause::SignatureInvalid, [true, false]),
            (Cause::ModuleInvalid, [false, false]),
            (Cause::TrialFailed, [false, false]),
        ] {
            let fault = Fault { cause, why: String::new() };
            assert_eq!(
                [false, true].map(|has_config_map| fault.may_pass(has_config_map)),
                expected,
                "{cause:?}"
            );
        }
    }
}
