//! Enums whose cases have names.

/// Defines an enum with a name for each case, and the list of its cases.
#[macro_export]
macro_rules! named_cases {
    ($(#[$meta:meta])* $type:ident { $($(#[$doc:meta])* $case:ident = $name:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $type { $($(#[$doc])* $case,)* }

        impl $type {
            /// Every case, in order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$case),*];

            /// Its name, as the API, the contract or metrics have it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$case => $name,)* }
            }
        }
    };
}
pub(crate) use named_cases;
