//! Tools, and the arguments of their calls.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A tool of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// Name by which clients call the tool.
    pub name: String,
    /// Description of what the tool does and changes: models choose by it.
    pub description: String,
    /// True if it only reads.
    pub is_read_only: bool,
    /// Parameters of a call.
    pub parameters: Vec<Parameter>,
}

/// A parameter of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Name of the parameter.
    pub name: String,
    /// Description of its values.
    pub description: String,
    /// The form of its values.
    pub form: Form,
    /// True if a call must have it.
    pub is_required: bool,
}

/// Form of a parameter's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// A text, that begins with no `-` and has no control character.
    Text,
    /// A whole number, 0 or more.
    Number,
    /// One of these texts.
    OneOf(Vec<String>),
}

/// Bytes of a text at most; no name or path of a file is longer.
const MAX_TEXT: usize = 4096;

impl Tool {
    /// Returns the tool as `tools/list` gives it, with a JSON schema of its arguments.
    pub fn definition(&self) -> Value {
        let properties = self.parameters.iter().map(Parameter::schema);
        let properties: Map<String, Value> = properties.collect();
        let required = self.parameters.iter().filter(|p| p.is_required);
        let required: Vec<&str> = required.map(|p| p.name.as_str()).collect();
        json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            },
            "annotations": {
                "readOnlyHint": self.is_read_only,
                "destructiveHint": false,
                "openWorldHint": false,
            },
        })
    }

    /// Checks the arguments of a call against the parameters, and returns their values as texts. None begins with `-`, none has a
    /// control character.
    ///
    /// # Errors
    /// A sentence that names the argument at fault: unknown, missing, of another type, or a text that could be an option.
    pub fn check(
        &self,
        arguments: &Map<String, Value>,
    ) -> Result<BTreeMap<String, String>, String> {
        let find = |name: &str| self.parameters.iter().find(|p| p.name == *name);
        let mut values = BTreeMap::new();
        for (name, value) in arguments {
            let Some(parameter) = find(name) else {
                let known: Vec<&str> = self.parameters.iter().map(|p| p.name.as_str()).collect();
                let name: String = name.escape_debug().take(40).collect();
                return Err(format!(
                    "{} has no argument \"{name}\": it has {}",
                    self.name,
                    match &known[..] {
                        [] => "none".to_owned(),
                        known => known.join(", "),
                    }
                ));
            };
            // As clients write an argument that is left out.
            if !value.is_null() {
                let text = parameter.form.check(value);
                let text = text.map_err(|why| format!("{name} {why}"))?;
                values.insert(name.clone(), text);
            }
        }
        let is_missing = |p: &&Parameter| p.is_required && !values.contains_key(&p.name);
        match self.parameters.iter().find(is_missing) {
            Some(missing) => Err(format!("{} needs {}", self.name, missing.name)),
            None => Ok(values),
        }
    }
}

impl Parameter {
    fn schema(&self) -> (String, Value) {
        let description = &self.description;
        let schema = match &self.form {
            Form::Text => json!({"type": "string", "description": description}),
            Form::Number => json!({"type": "integer", "minimum": 0, "description": description}),
            Form::OneOf(values) => {
                json!({"type": "string", "enum": values, "description": description})
            }
        };
        (self.name.clone(), schema)
    }
}

impl Form {
    /// Checks a value; the error follows the parameter's name.
    fn check(&self, value: &Value) -> Result<String, String> {
        match (self, value) {
            (Form::Number, Value::Number(number)) => match number.as_u64() {
                Some(number) => Ok(number.to_string()),
                None => Err("is not a whole number of 0 or more".to_owned()),
            },
            (Form::Number, _) => Err("is not a number".to_owned()),
            (Form::OneOf(values), Value::String(text)) if values.contains(text) => Ok(text.clone()),
            (Form::OneOf(values), _) => Err(format!("is none of {}", values.join(", "))),
            (Form::Text, Value::String(text)) => plain(text).map(|()| text.clone()),
            (Form::Text, _) => Err("is not a text".to_owned()),
        }
    }
}

/// Checks that a text is no option, and one line.
fn plain(text: &str) -> Result<(), String> {
    let why = match text {
        "" => "is empty",
        _ if text.len() > MAX_TEXT => "is longer than 4096 bytes",
        _ if text.starts_with('-') => "begins with \"-\", as options do",
        _ if text.chars().any(char::is_control) => "has a control character",
        _ => return Ok(()),
    };
    Err(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tool() -> Tool {
        let parameter = |name: &str, form, is_required| Parameter {
            name: name.to_owned(),
            description: format!("about {name}"),
            form,
            is_required,
        };
        let devices = Form::OneOf(vec!["disk".to_owned(), "net".to_owned()]);
        Tool {
            name: "layers".to_owned(),
            description: "Traces.".to_owned(),
            is_read_only: false,
            parameters: vec![
                parameter("vm", Form::Text, true),
                parameter("device", devices, false),
                parameter("level", Form::Number, false),
            ],
        }
    }

    fn checked(arguments: Value) -> Result<BTreeMap<String, String>, String> {
        let Value::Object(arguments) = arguments else {
            panic!("{arguments}");
        };
        tool().check(&arguments)
    }

    #[test]
    fn arguments_are_those_of_the_schema() {
        let values = checked(json!({"vm": "web01", "device": "net", "level": 2})).unwrap();
        assert_eq!(
            values.into_values().collect::<Vec<_>>(),
            ["net", "2", "web01"]
        );
        assert!(checked(json!({"vm": "größe/../x", "device": null})).is_ok());
        let schema = &tool().definition()["inputSchema"];
        assert_eq!(schema["required"], json!(["vm"]));
        assert_eq!(
            schema["properties"]["device"]["enum"],
            json!(["disk", "net"])
        );
        assert_eq!(schema["additionalProperties"], json!(false));
    }

    #[test]
    fn hostile_arguments_are_refused_by_their_name() {
        for (arguments, why) in [
            (json!({}), "layers needs vm"),
            (json!({"vm": null}), "layers needs vm"),
            (json!({"vm": 7}), "vm is not a text"),
            (json!({"vm": ""}), "vm is empty"),
            (json!({"vm": "--apply"}), "vm begins with \"-\""),
            (json!({"vm": "-"}), "vm begins with \"-\""),
            (json!({"vm": "a\u{0}b"}), "vm has a control character"),
            (json!({"vm": "a\nb"}), "vm has a control character"),
            (json!({"vm": "x".repeat(4097)}), "vm is longer"),
            (json!({"vm": ["a"]}), "vm is not a text"),
            (
                json!({"vm": "a", "device": "--set"}),
                "device is none of disk, net",
            ),
            (
                json!({"vm": "a", "level": -1}),
                "level is not a whole number",
            ),
            (
                json!({"vm": "a", "level": 1e300}),
                "level is not a whole number",
            ),
            (json!({"vm": "a", "level": "2"}), "level is not a number"),
            (
                json!({"vm": "a", "--apply": true}),
                "layers has no argument \"--apply\": it has vm, device, level",
            ),
        ] {
            let refused = checked(arguments.clone()).unwrap_err();
            assert!(refused.starts_with(why), "{arguments}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_no_option_and_one_line(vm in ".*", level in any::<u64>()) {
            if let Ok(values) = checked(json!({"vm": vm, "level": level})) {
                for value in values.values() {
                    prop_assert!(!value.starts_with('-'));
                    prop_assert!(!value.contains(char::is_control));
                    prop_assert!(!value.is_empty());
                }
            }
        }
    }
}
