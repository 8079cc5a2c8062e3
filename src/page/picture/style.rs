//! The colours of a picture, on light and on dark ground.

use crate::ir::Scope;

/// The class of a scope in the style sheet.
pub fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Global => "global",
        Scope::Cluster | Scope::Shared => "shared",
        Scope::Fragment => "fragment",
        Scope::Local => "local",
    }
}

/// The style sheet. The ground is always drawn, so that text is readable on any page.
pub const STYLE: &str = include_str!("picture.css");
