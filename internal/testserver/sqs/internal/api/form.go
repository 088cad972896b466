package api

import (
	"net/url"
	"strconv"
)

// A Form is the body of a request in the query protocol.
type Form struct{ url.Values }

// Has reports whether a parameter exists, even if it is empty.
func (f Form) Has(name string) bool { return f.Values.Has(name) }

// Optional returns a parameter, or nil if it does not exist.
func (f Form) Optional(name string) *string {
	if !f.Has(name) {
		return nil
	}
	value := f.Get(name)
	return &value
}

// Each calls do with the prefix of each item of a list or map, such as
// "Attributes.entry.1.".
func (f Form) Each(list string, do func(prefix string)) {
	for i := 1; ; i++ {
		prefix := list + "." + strconv.Itoa(i)
		if !f.startsWith(prefix) {
			return
		}
		do(prefix)
	}
}

func (f Form) startsWith(prefix string) bool {
	if f.Has(prefix) {
		return true
	}
	prefix += "."
	for name := range f.Values {
		if len(name) > len(prefix) && name[:len(prefix)] == prefix {
			return true
		}
	}
	return false
}

// Strings returns a map of strings.
func (f Form) Strings(name string) map[string]string {
	m := map[string]string{}
	f.Each(name+".entry", func(prefix string) { m[f.Get(prefix+".key")] = f.Get(prefix + ".value") })
	return m
}

// Attributes returns the message attributes after a prefix.
func (f Form) Attributes(prefix string) map[string]AttributeValue {
	m := map[string]AttributeValue{}
	f.Each(prefix+"MessageAttributes.entry", func(p string) {
		m[f.Get(p+".Name")] = AttributeValue{
			DataType:    f.Optional(p + ".Value.DataType"),
			StringValue: f.Optional(p + ".Value.StringValue"),
			BinaryValue: f.Optional(p + ".Value.BinaryValue"),
		}
	})
	return m
}

// An AnswerXML is the result of an operation in the query protocol: a struct whose fields
// have the names of the elements; nil if there is none.
type AnswerXML any
