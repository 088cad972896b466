package admin

import (
	"encoding/xml"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/rules"
)

const schemaXSD = "http://www.w3.org/2001/XMLSchema"

// A ruleDescription is a RuleDescription or the DefaultRuleDescription of a subscription.
type ruleDescription struct {
	XMLName   xml.Name
	Schema    string             `xml:"xmlns,attr,omitempty"`
	SchemaXSI string             `xml:"xmlns:i,attr,omitempty"`
	Filter    *filterDescription `xml:"Filter"`
	Action    *actionDescription `xml:"Action"`
	CreatedAt string             `xml:"CreatedAt,omitempty"`
	Name      string             `xml:"Name"`
}

type filterDescription struct {
	Type             string     `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr"`
	CorrelationID    *string    `xml:"CorrelationId"`
	MessageID        *string    `xml:"MessageId"`
	To               *string    `xml:"To"`
	ReplyTo          *string    `xml:"ReplyTo"`
	Label            *string    `xml:"Label"`
	SessionID        *string    `xml:"SessionId"`
	ReplyToSessionID *string    `xml:"ReplyToSessionId"`
	ContentType      *string    `xml:"ContentType"`
	Properties       *keyValues `xml:"Properties"`
	SQLExpression    *string    `xml:"SqlExpression"`
	Compatibility    int        `xml:"CompatibilityLevel,omitempty"`
	Parameters       *keyValues `xml:"Parameters"`
}

type actionDescription struct {
	Type          string     `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr"`
	SQLExpression string     `xml:"SqlExpression,omitempty"`
	Compatibility int        `xml:"CompatibilityLevel,omitempty"`
	Parameters    *keyValues `xml:"Parameters"`
}

type keyValues struct {
	All []keyValue `xml:"KeyValueOfstringanyType"`
}

type keyValue struct {
	Key   string
	Value typedValue
}

// A typedValue is a value with the name of its type in the schema of XML.
type typedValue struct {
	Type   string `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr"`
	Schema string `xml:"xmlns:d,attr,omitempty"`
	Text   string `xml:",chardata"`
}

// values reads typed values. The prefix of a type may be any that stands for the schema.
func (k *keyValues) values() (map[string]any, error) {
	if k == nil || len(k.All) == 0 {
		return nil, nil
	}
	values := make(map[string]any, len(k.All))
	for _, kv := range k.All {
		name := kv.Value.Type[strings.LastIndex(kv.Value.Type, ":")+1:]
		value, err := parseValue(name, kv.Value.Text)
		if err != nil {
			return nil, fmt.Errorf("the value %q of %q: %w", kv.Value.Text, kv.Key, err)
		}
		values[kv.Key] = value
	}
	return values, nil
}

func parseValue(name, text string) (any, error) {
	switch name {
	case "string":
		return text, nil
	case "boolean":
		return strconv.ParseBool(text)
	case "byte", "short", "int", "long", "unsignedByte", "unsignedShort", "unsignedInt":
		return strconv.ParseInt(text, 10, 64)
	case "float", "double", "decimal":
		return strconv.ParseFloat(text, 64)
	case "dateTime":
		return time.Parse(time.RFC3339Nano, text)
	}
	return nil, fmt.Errorf("the type %q is not supported", name)
}

func newKeyValues(values map[string]any) *keyValues {
	if len(values) == 0 {
		return nil
	}
	k := &keyValues{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		name, text := "string", fmt.Sprint(values[key])
		switch v := values[key].(type) {
		case bool:
			name = "boolean"
		case int, int8, int16, int32, int64, uint8, uint16, uint32, uint64:
			name = "int"
		case float32, float64:
			name = "double"
		case time.Time:
			name, text = "dateTime", timestamp(v)
		}
		k.All = append(k.All, keyValue{key, typedValue{Type: "d:" + name, Schema: schemaXSD, Text: text}})
	}
	return k
}

// rule returns the rule that a description has; the filter is true if there is none.
func (d *ruleDescription) rule() (rules.Rule, error) {
	r := rules.Rule{Name: d.Name, Filter: rules.TrueFilter{}}
	if d.Filter != nil {
		filter, err := d.Filter.filter()
		if err != nil {
			return r, err
		}
		r.Filter = filter
	}
	if d.Action == nil || d.Action.Type == "EmptyRuleAction" {
		return r, nil
	}
	if d.Action.Type != "SqlRuleAction" {
		return r, fmt.Errorf("an action of the type %q is not supported", d.Action.Type)
	}
	parameters, err := d.Action.Parameters.values()
	r.Action = &rules.Action{Expression: d.Action.SQLExpression, Parameters: parameters}
	return r, err
}

func (f *filterDescription) filter() (rules.Filter, error) {
	switch f.Type {
	case "TrueFilter":
		return rules.TrueFilter{}, nil
	case "FalseFilter":
		return rules.FalseFilter{}, nil
	case "SqlFilter":
		parameters, err := f.Parameters.values()
		return rules.SQLFilter{Expression: valueOf(f.SQLExpression), Parameters: parameters}, err
	case "CorrelationFilter":
		properties, err := f.Properties.values()
		return rules.CorrelationFilter{
			ContentType: f.ContentType, CorrelationID: f.CorrelationID, Subject: f.Label, MessageID: f.MessageID, ReplyTo: f.ReplyTo,
			ReplyToSessionID: f.ReplyToSessionID, SessionID: f.SessionID, To: f.To, Properties: properties,
		}, err
	}
	return nil, fmt.Errorf("a filter of the type %q is not supported", f.Type)
}

// describeRule describes a rule. A rule without an action has the action EmptyRuleAction,
// which the SDK requires.
func describeRule(r broker.RuleInfo) *ruleDescription {
	d := &ruleDescription{
		XMLName: xml.Name{Local: "RuleDescription"}, Schema: connectSchema, SchemaXSI: schemaXSI,
		Name: r.Name, CreatedAt: timestamp(r.Created), Action: &actionDescription{Type: "EmptyRuleAction"},
	}
	if r.Action != nil {
		d.Action = &actionDescription{
			Type: "SqlRuleAction", SQLExpression: r.Action.Expression, Compatibility: 20, Parameters: newKeyValues(r.Action.Parameters),
		}
	}
	switch f := r.Filter.(type) {
	case rules.FalseFilter:
		d.Filter = &filterDescription{Type: "FalseFilter", SQLExpression: new("1=0"), Compatibility: 20}
	case rules.SQLFilter:
		d.Filter = &filterDescription{Type: "SqlFilter", SQLExpression: &f.Expression, Compatibility: 20, Parameters: newKeyValues(f.Parameters)}
	case rules.CorrelationFilter:
		d.Filter = &filterDescription{
			Type: "CorrelationFilter", ContentType: f.ContentType, CorrelationID: f.CorrelationID, Label: f.Subject, MessageID: f.MessageID,
			ReplyTo: f.ReplyTo, ReplyToSessionID: f.ReplyToSessionID, SessionID: f.SessionID, To: f.To, Properties: newKeyValues(f.Properties),
		}
	default:
		d.Filter = &filterDescription{Type: "TrueFilter", SQLExpression: new("1=1"), Compatibility: 20}
	}
	return d
}
