//! How core types cross the contract: one line per type, each with both directions.
//!
//! This file is compiled with the component's bindings and with the host's of each version of the contract,
//! which name the same types of `wit/` alike. So the sides cannot disagree, and the round trip can be tested
//! without WebAssembly. `super::bindings` is the side's bindings module, and the side's macro
//! `since_0_2! { { new } else { old } }` says which of two texts is compiled. Each interface of the contract
//! has a file in `carry/`.
//!
//! What does not cross: the labels of a volume (the host evaluates selectors), finalizers other than the two
//! that decisions read, the facts that policies declare, and all of steering.

use std::sync::Arc;

use bindery_core::{AccessModes, Handle, Text, Uid, Version};

/// A type of core that crosses the contract.
pub(crate) trait Carry: Sized {
    /// Its type in the bindings.
    type Wit;

    /// To the contract's type.
    fn lower(&self) -> Self::Wit;

    /// From the contract's type.
    fn lift(wit: Self::Wit) -> Result<Self, IllTyped>;
}

/// Why a value of the contract's type has no counterpart in core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IllTyped(pub(crate) &'static str);

/// Types that are the same on both sides.
macro_rules! same {
    ($($type:ty),* $(,)?) => {
        $(impl Carry for $type {
            type Wit = $type;
            fn lower(&self) -> $type {
                *self
            }
            fn lift(wit: $type) -> Result<Self, IllTyped> {
                Ok(wit)
            }
        })*
    };
}

/// Enums: the same cases, by name. Cases after the semicolon came with version 0.2; version 0.1 is told the
/// nearest of its own.
macro_rules! cases {
    ($($module:ident::$type:ident { $($case:ident),* $(,)? $(; $($newer:ident => $nearest:ident),*)? })*) => {
        $(impl Carry for $type {
            type Wit = $module::$type;
            fn lower(&self) -> $module::$type {
                match self {
                    $(Self::$case => $module::$type::$case,)*
                    $($(Self::$newer => since_0_2! {
                        { $module::$type::$newer } else { $module::$type::$nearest }
                    },)*)?
                }
            }
            fn lift(wit: $module::$type) -> Result<Self, IllTyped> {
                Ok(since_0_2! {
                    {
                        match wit {
                            $($module::$type::$case => Self::$case,)*
                            $($($module::$type::$newer => Self::$newer,)*)?
                        }
                    } else {
                        match wit {
                            $($module::$type::$case => Self::$case,)*
                        }
                    }
                })
            }
        })*
    };
}

/// Records: the same fields, by name; those after the semicolon stay on the host.
macro_rules! records {
    ($($module:ident::$type:ident { $($field:ident),* $(,)? $(; $($host:ident),*)? })*) => {
        $(impl Carry for $type {
            type Wit = $module::$type;
            fn lower(&self) -> $module::$type {
                $module::$type { $($field: self.$field.lower(),)* }
            }
            fn lift(wit: $module::$type) -> Result<Self, IllTyped> {
                Ok(Self { $($field: Carry::lift(wit.$field)?,)* $($($host: Default::default(),)*)? })
            }
        })*
    };
}

/// Variants: the same cases, by name. `plain` ones carry nothing, `value` ones one value, `field` ones one
/// value that core names, `fields` ones several, which the contract puts into a record. `newer` ones are as
/// `fields` and came with version 0.2; all of them are parts of decisions, which are never told to an engine.
macro_rules! variants {
    ($($type:ty = $module:ident::$wit:ident {
        $(plain: $($plain:ident),*;)?
        $(value: $($value:ident),*;)?
        $(field: $($single:ident($name:ident)),*;)?
        $(fields: $($case:ident = $record_module:ident::$record:ident { $($field:ident),* }),*;)?
        $(newer: $($newer:ident = $newer_module:ident::$newer_record:ident { $($newer_field:ident),* }),*;)?
    })*) => {
        $(impl Carry for $type {
            type Wit = $module::$wit;
            fn lower(&self) -> $module::$wit {
                match self {
                    $($(Self::$plain => $module::$wit::$plain,)*)?
                    $($(Self::$value(value) => $module::$wit::$value(value.lower()),)*)?
                    $($(Self::$single { $name } => $module::$wit::$single($name.lower()),)*)?
                    $($(Self::$case { $($field),* } => {
                        $module::$wit::$case($record_module::$record { $($field: $field.lower()),* })
                    })*)?
                    $($(Self::$newer { $($newer_field),* } => since_0_2! {
                        {
                            $module::$wit::$newer($newer_module::$newer_record {
                                $($newer_field: $newer_field.lower()),*
                            })
                        } else {{
                            let _ = ($($newer_field),*);
                            unreachable!("an engine is never told a decision")
                        }}
                    },)*)?
                }
            }
            fn lift(wit: $module::$wit) -> Result<Self, IllTyped> {
                Ok(since_0_2! {
                    {
                        match wit {
                            $($($module::$wit::$plain => Self::$plain,)*)?
                            $($($module::$wit::$value(value) => Self::$value(Carry::lift(value)?),)*)?
                            $($($module::$wit::$single($name) => {
                                Self::$single { $name: Carry::lift($name)? }
                            })*)?
                            $($($module::$wit::$case(record) => {
                                Self::$case { $($field: Carry::lift(record.$field)?),* }
                            })*)?
                            $($($module::$wit::$newer(record) => {
                                Self::$newer { $($newer_field: Carry::lift(record.$newer_field)?),* }
                            })*)?
                        }
                    } else {
                        match wit {
                            $($($module::$wit::$plain => Self::$plain,)*)?
                            $($($module::$wit::$value(value) => Self::$value(Carry::lift(value)?),)*)?
                            $($($module::$wit::$single($name) => {
                                Self::$single { $name: Carry::lift($name)? }
                            })*)?
                            $($($module::$wit::$case(record) => {
                                Self::$case { $($field: Carry::lift(record.$field)?),* }
                            })*)?
                        }
                    }
                })
            }
        })*
    };
}

/// Types that wrap one value of the contract.
macro_rules! newtypes {
    ($($type:ident($wit:ty) = $read:expr, $make:expr;)*) => {
        $(impl Carry for $type {
            type Wit = $wit;
            fn lower(&self) -> $wit {
                let read: fn(&Self) -> $wit = $read;
                read(self)
            }
            fn lift(wit: $wit) -> Result<Self, IllTyped> {
                let make: fn($wit) -> Result<Self, IllTyped> = $make;
                make(wit)
            }
        })*
    };
}

same!(bool, u32, u64, i64, ());

newtypes! {
    Text(String) = |text| String::from(&**text), |text| Ok(text.into());
    Uid(String) = |uid| uid.0.lower(), |text| Ok(Self(text.into()));
    Version(String) = |version| version.0.lower(), |text| Ok(Self(text.into()));
    Handle(u32) = |handle| handle.0, |number| Ok(Self(number));
    AccessModes(u32) = |set| set.bits(),
        |bits| Self::from_bits(bits).ok_or(IllTyped("an access-set with a bit of no access mode"));
}

impl<T: Carry> Carry for Arc<T> {
    type Wit = T::Wit;
    fn lower(&self) -> T::Wit {
        (**self).lower()
    }
    fn lift(wit: T::Wit) -> Result<Self, IllTyped> {
        T::lift(wit).map(Self::new)
    }
}

impl<T: Carry> Carry for Vec<T> {
    type Wit = Vec<T::Wit>;
    fn lower(&self) -> Self::Wit {
        self.iter().map(T::lower).collect()
    }
    fn lift(wit: Self::Wit) -> Result<Self, IllTyped> {
        wit.into_iter().map(T::lift).collect()
    }
}

impl<T: Carry> Carry for Option<T> {
    type Wit = Option<T::Wit>;
    fn lower(&self) -> Self::Wit {
        self.as_ref().map(T::lower)
    }
    fn lift(wit: Self::Wit) -> Result<Self, IllTyped> {
        wit.map(T::lift).transpose()
    }
}

impl<T: Carry, E: Carry> Carry for Result<T, E> {
    type Wit = Result<T::Wit, E::Wit>;
    fn lower(&self) -> Self::Wit {
        self.as_ref().map(T::lower).map_err(E::lower)
    }
    fn lift(wit: Self::Wit) -> Result<Self, IllTyped> {
        Ok(match wit {
            Ok(value) => Ok(T::lift(value)?),
            Err(error) => Err(E::lift(error)?),
        })
    }
}

// Found by path, because the host includes this file from another folder. Below the macros, which they use.
#[path = "carry/answers.rs"]
mod answers;
#[path = "carry/decisions.rs"]
pub(crate) mod decisions;
#[path = "carry/objects.rs"]
mod objects;
