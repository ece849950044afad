package event

import (
	"bytes"
	"encoding/json"
	"strings"
)

// InlineSecrets is what is wrong with a command for a DataStore that holds a password or a private key itself: commands are stored in
// JetStream, which no key may reach. It finds them under any spelling of their fields, since what is refused for its spelling is stored,
// too. Other kinds have no such fields. Values are never named.
func InlineSecrets(kind string, data []byte) []FieldError {
	if kind != DataStores || len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	value, err := decoded(data)
	if err != nil {
		return []FieldError{{Field: "event.data", Rule: RuleInvalid, Message: "must be a JSON object"}}
	}
	var found []FieldError
	eachSecret("", value, false, func(path string) {
		found = append(found, FieldError{Field: path, Rule: RuleForbidden, Message: "commands are stored, so they must not hold " +
			"passwords and private keys: put it into a Secret and name that in secretReference, or apply the DataStore with kubectl"})
	})
	return found
}

// Redact is the body of a command as it may be kept: without what a DataStore's passwords and private keys are, and without all of it if
// that can't be told. held reports whether there was any. The body is the data, or an event in structured mode.
func Redact(kind string, body []byte) (kept []byte, held bool) {
	if kind != DataStores || len(bytes.TrimSpace(body)) == 0 {
		return body, false
	}
	value, err := decoded(body)
	if err != nil {
		return []byte(`"` + redacted + `"`), true
	}
	envelope, _ := value.(map[string]any)
	if _, packed := envelope["data_base64"]; packed {
		envelope["data_base64"], held = "", true
	}
	if text, ok := envelope["data"].(string); ok && text != "" {
		envelope["data"], held = redacted, true
	}
	eachSecret("", value, true, func(string) { held = true })
	if kept, err = json.Marshal(value); err != nil {
		return []byte(`"` + redacted + `"`), true
	}
	return kept, held
}

// redacted stands for what isn't kept.
const redacted = "redacted"

// decoded is the JSON of a document; of a key that is given twice, the last.
func decoded(data []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err = d.Decode(&value)
	if err == nil && d.More() {
		err = json.Unmarshal(data, &value) // says what follows
	}
	return value, err
}

// eachSecret calls f with the path of each password and private key below a value, and replaces them if that is wanted.
func eachSecret(path string, value any, replace bool, f func(path string)) {
	switch v := value.(type) {
	case map[string]any:
		for k, inner := range v {
			at := strings.TrimPrefix(path+"."+k, ".")
			if !strings.EqualFold(k, "password") && !strings.EqualFold(k, "privateKey") {
				eachSecret(at, inner, replace, f)
				continue
			}
			if secret, where := inPlace(at, inner); secret != nil {
				f(where)
				if replace {
					v[k] = redacted
				}
			}
		}
	case []any:
		for _, inner := range v {
			eachSecret(path, inner, replace, f)
		}
	}
}

// inPlace returns what a password or private key is, where it is given in place, and nil where it is empty or refers to a Secret alone.
func inPlace(path string, value any) (secret any, where string) {
	fields, ok := value.(map[string]any)
	if !ok {
		if value == nil || value == "" {
			return nil, ""
		}
		return value, path
	}
	for k, v := range fields {
		if !strings.EqualFold(k, "secretReference") && v != nil && v != "" {
			return v, path + "." + k
		}
	}
	return nil, ""
}
