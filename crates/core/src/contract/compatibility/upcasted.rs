//! What a schema becomes by a step of an up-cast: every payload that was valid before the step is valid in the result after
//! it. So up-casts are compared without a single payload.
//!
//! May import: `schema`, `extension`.

use crate::{
    contract::{
        extension::Upcast,
        scalar::Scalar,
        schema::{Additional, Kind, Member, ObjectRules, Rules, Schema, Types, Values},
        validate,
    },
    json_text::{Node, Pointer},
};

/// Takes `step` on `schema`.
///
/// # Errors
/// Why the step can fail, or can't be followed: in words. What can be said of the result is done all the same.
pub(super) fn step(schema: &mut Schema, step: &Upcast) -> Result<(), String> {
    match step {
        Upcast::Default(at, value) => {
            let (object, name) = object(schema, at)?;
            let value = validate::document(value).map_err(|why| why.text)?;
            default(object, name, of_value(value.root()));
            Ok(())
        }
        Upcast::Remove(at) => {
            let (object, name) = object(schema, at)?;
            if matches!(object.member(name), Member::Nothing) {
                return Err(format!("{at} can't be there, so there is nothing to remove"));
            }
            take_out(object, name);
            object.min = object.min.saturating_sub(1);
            Ok(())
        }
        Upcast::Rename(from, to) => {
            let (object, name) = object(schema, from)?;
            let moved = match object.member(name) {
                Member::Nothing => {
                    return Err(format!("{from} can't be there, so there is nothing to rename"));
                }
                Member::Anything => anything(),
                Member::Like(schema) => schema.clone(),
            };
            let Some((new, _)) = to.steps().split_last() else {
                return Err("it names the whole payload".to_owned());
            };
            let is_free = matches!(object.member(new), Member::Nothing);
            let is_required = object.requires(name);
            take_out(object, name);
            put(object, new, moved);
            if is_required && !object.requires(new) {
                object.required.push(new.clone());
            }
            if is_free {
                Ok(())
            } else {
                Err(format!(
                    "{to} may be there already, and then {from} can't become it"
                ))
            }
        }
    }
}

/// The object that `pointer`'s last step is a member of, and that step.
fn object<'s, 'p>(
    schema: &'s mut Schema,
    pointer: &'p Pointer,
) -> Result<(&'s mut ObjectRules, &'p str), String> {
    let lost = || format!("{pointer} leads to no object that the version before describes");
    let (name, steps) = pointer.steps().split_last().ok_or_else(lost)?;
    let mut object = rules(schema).ok_or_else(lost)?;
    for step in steps {
        let found = object.properties.iter_mut().find(|(known, _)| known == step);
        object = found.and_then(|(_, schema)| rules(schema)).ok_or_else(lost)?;
    }
    Ok((object, name))
}

fn rules(schema: &mut Schema) -> Option<&mut ObjectRules> {
    match &mut schema.kind {
        Kind::Value(rules) if rules.types.meets(Types::OBJECT) => Some(&mut rules.object),
        _ => None,
    }
}

fn default(object: &mut ObjectRules, name: &str, value: Schema) {
    if object.requires(name) {
        return;
    }
    let with = match object.member(name) {
        Member::Nothing => value,
        Member::Anything => anything(),
        Member::Like(schema) => Schema {
            at: schema.at.clone(),
            kind: Kind::AnyOf(vec![schema.clone(), value]),
        },
    };
    put(object, name, with);
    object.required.push(name.into());
    object.max = object.max.map(|max| max.saturating_add(1));
}

/// `name` is there no more.
fn take_out(object: &mut ObjectRules, name: &str) {
    object.properties.retain(|(known, _)| **known != *name);
    object.required.retain(|known| **known != *name);
    if !matches!(object.additional, Additional::Nothing) {
        let nothing = Kind::AnyOf(Vec::new());
        object.properties.push((name.into(), new(nothing)));
    }
}

fn put(object: &mut ObjectRules, name: &str, schema: Schema) {
    object.properties.retain(|(known, _)| **known != *name);
    object.properties.push((name.into(), schema));
}

fn new(kind: Kind) -> Schema {
    Schema { at: "".into(), kind }
}

fn anything() -> Schema {
    new(Kind::Value(Box::new(Rules::of(Types::ALL))))
}

/// A schema that takes `node`, and little else. As deep as the node, whose depth was limited when it was read.
fn of_value(node: &Node<'_>) -> Schema {
    let mut rules = Rules::of(Types::ALL);
    match node {
        Node::Object(..) => {
            rules.types = Types::OBJECT;
            let members = node.members().into_iter().flatten();
            rules.object.properties = members
                .map(|(name, value)| (name.into(), of_value(value)))
                .collect();
            rules.object.required = rules.object.properties.iter().map(|p| p.0.clone()).collect();
            rules.object.additional = Additional::Nothing;
        }
        Node::Array(..) => {
            rules.types = Types::ARRAY;
            let items: Vec<Schema> = node.items().into_iter().flatten().map(of_value).collect();
            (rules.array.min, rules.array.max) = (items.len() as u64, Some(items.len() as u64));
            rules.array.items = Some(Box::new(new(Kind::AnyOf(items))));
        }
        _ => {
            if let Some(value) = Scalar::of(node) {
                rules.types = match node {
                    Node::Number(text) if !text.contains(['.', 'e', 'E']) => Types::INTEGER,
                    _ => value.types(),
                };
                rules.values = Some(Values {
                    keyword: "const",
                    any_of: vec![value],
                });
            }
        }
    }
    new(Kind::Value(Box::new(rules)))
}
