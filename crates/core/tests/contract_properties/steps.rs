//! Steps of an up-cast, and the version that somebody would write beside them.

use serde_json::{Value, json};

use crate::draw::{Draw, NAMES};

/// Steps on members of the payload and of one inside of it.
pub(crate) fn steps(draw: &mut Draw<'_>) -> Value {
    let count = 1 + draw.below(3);
    let step = |draw: &mut Draw<'_>| {
        let above = if draw.once(4) { "/a" } else { "" };
        let name = *draw.pick(&NAMES);
        match draw.below(3) {
            0 => {
                json!({"op": "default", "path": format!("{above}/{name}"), "value": draw.pick(&[json!("a"), json!(1), json!([1, "a"]), json!({"b": null})])})
            }
            1 => json!({"op": "remove", "path": format!("{above}/{name}")}),
            _ => {
                let to = draw.pick(&["a", "b", "c", "d", "e"]);
                json!({"op": "rename", "from": format!("{above}/{name}"), "to": format!("{above}/{to}")})
            }
        }
    };
    Value::Array((0..count).map(|_| step(draw)).collect())
}

/// What somebody would write as the next version beside these steps; right most of the time.
pub(crate) fn up_cast(old: &Value, steps: &Value) -> Value {
    let mut new = old.clone();
    for step in steps.as_array().unwrap() {
        let path = step.get("path").or(step.get("from")).unwrap().as_str().unwrap();
        let names: Vec<&str> = path.split('/').skip(1).collect();
        let object = match names.as_slice() {
            [_] => Some(&mut new),
            [above, _] => new["properties"].get_mut(above).filter(|o| o["type"] == "object"),
            _ => None,
        };
        let (Some(object), Some(name)) = (object, names.last()) else {
            continue;
        };
        let properties = object["properties"].as_object_mut().unwrap();
        let taken = properties.remove(*name);
        match (step["op"].as_str().unwrap(), taken) {
            ("default", Some(property)) => {
                let both = json!({"anyOf": [property, {"type": ["string", "integer", "array", "object"]}]});
                properties.insert((*name).to_owned(), both);
            }
            ("default", None) => {
                properties.insert((*name).to_owned(), json!({}));
            }
            ("rename", Some(property)) => {
                let to = step["to"].as_str().unwrap().rsplit('/').next().unwrap();
                properties.insert(to.to_owned(), property);
            }
            _ => {}
        }
        if step["op"] != "default" {
            let required = object["required"].as_array_mut().unwrap();
            required.retain(|required| required != name);
        }
    }
    new
}
