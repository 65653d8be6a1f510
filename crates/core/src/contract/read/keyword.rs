//! The keywords of JSON Schema 2020-12 that are enforced, and what to write instead of the others.
//!
//! May import: `schema` (types).

use crate::contract::schema::Types;

/// What a keyword is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    /// About payloads of these types (its name, the types, their name in the plural).
    For(&'static str, Types, &'static str),
    /// Another schema in the place of this one.
    Choice(&'static str),
    /// For people; says nothing about payloads.
    Note,
    /// Stands at the top of the file only.
    Root,
}

/// The keyword called `name`, if it is enforced or harmless.
pub(crate) fn of(name: &str) -> Option<Use> {
    let text = |name| Use::For(name, Types::STRING, "texts");
    let number = |name| Use::For(name, Types::NUMBER, "numbers");
    let array = |name| Use::For(name, Types::ARRAY, "arrays");
    let object = |name| Use::For(name, Types::OBJECT, "objects");
    let any = |name| Use::For(name, Types::ALL, "any value");
    Some(match name {
        "type" => any("type"),
        "enum" => any("enum"),
        "const" => any("const"),
        "minLength" => text("minLength"),
        "maxLength" => text("maxLength"),
        "pattern" => text("pattern"),
        "format" => text("format"),
        "minimum" => number("minimum"),
        "maximum" => number("maximum"),
        "exclusiveMinimum" => number("exclusiveMinimum"),
        "exclusiveMaximum" => number("exclusiveMaximum"),
        "items" => array("items"),
        "minItems" => array("minItems"),
        "maxItems" => array("maxItems"),
        "uniqueItems" => array("uniqueItems"),
        "properties" => object("properties"),
        "required" => object("required"),
        "additionalProperties" => object("additionalProperties"),
        "minProperties" => object("minProperties"),
        "maxProperties" => object("maxProperties"),
        "$ref" => Use::Choice("$ref"),
        "anyOf" => Use::Choice("anyOf"),
        "title" | "description" | "$comment" | "default" | "deprecated" | "examples" => Use::Note,
        "$schema" | "$id" | "$defs" | "x-tidegate" => Use::Root,
        _ => return None,
    })
}

/// What to write instead of a keyword that isn't taken.
pub(crate) fn advice(name: &str) -> &'static str {
    match name {
        "oneOf" => "write \"anyOf\"",
        "allOf" => "write the members of all into one object",
        "not" | "if" | "then" | "else" => "write the possible forms as branches of \"anyOf\"",
        "nullable" => "write \"type\": [\"string\", \"null\"]",
        "multipleOf" => "write decimals as text with a \"pattern\"",
        "definitions" => "write \"$defs\"",
        "$dynamicRef" | "$recursiveRef" => "write \"$ref\": \"#/$defs/NAME\"",
        "$anchor" | "$dynamicAnchor" => "refer to definitions by \"#/$defs/NAME\"",
        "patternProperties" | "propertyNames" | "unevaluatedProperties" => {
            "name every property, and set \"additionalProperties\": false"
        }
        "prefixItems" | "contains" | "minContains" | "maxContains" | "unevaluatedItems" => {
            "write an object with a name for each place, or one schema in \"items\""
        }
        "dependentRequired" | "dependentSchemas" | "dependencies" => {
            "write the possible forms as branches of \"anyOf\""
        }
        _ => "correct its spelling or leave it out",
    }
}
