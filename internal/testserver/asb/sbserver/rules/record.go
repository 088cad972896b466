package rules

import (
	"fmt"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
)

// The values of Record.Filter.
const (
	filterTrue        = "true"
	filterFalse       = "false"
	filterCorrelation = "correlation"
	filterSQL         = "sql"
)

// NewRecord returns the record of a rule.
func NewRecord(r *Rule) Record {
	rec := Record{Name: r.Name}
	switch f := r.Filter.(type) {
	case FalseFilter:
		rec.Filter = filterFalse
	case CorrelationFilter:
		rec.Filter, rec.Values = filterCorrelation, encodeValues(f.Properties)
		f.Properties = nil
		rec.Correlation = &f
	case SQLFilter:
		rec.Filter, rec.Expression, rec.Values = filterSQL, f.Expression, encodeValues(f.Parameters)
	default:
		rec.Filter = filterTrue
	}
	if r.Action != nil {
		rec.Action, rec.ActionWith = &r.Action.Expression, encodeValues(r.Action.Parameters)
	}
	return rec
}

// Rule returns the rule of a record.
func (rec *Record) Rule() (Rule, error) {
	values, err := decodeValues(rec.Values)
	if err != nil {
		return Rule{}, err
	}
	r := Rule{Name: rec.Name}
	switch rec.Filter {
	case filterTrue:
		r.Filter = TrueFilter{}
	case filterFalse:
		r.Filter = FalseFilter{}
	case filterCorrelation:
		f := CorrelationFilter{}
		if rec.Correlation != nil {
			f = *rec.Correlation
		}
		f.Properties = values
		r.Filter = f
	case filterSQL:
		r.Filter = SQLFilter{Expression: rec.Expression, Parameters: values}
	default:
		return Rule{}, fmt.Errorf("the filter %q is not known", rec.Filter)
	}
	if rec.Action != nil {
		parameters, err := decodeValues(rec.ActionWith)
		if err != nil {
			return Rule{}, err
		}
		r.Action = &Action{Expression: *rec.Action, Parameters: parameters}
	}
	return r, nil
}

func encodeValues(values map[string]any) []byte {
	if len(values) == 0 {
		return nil
	}
	encoded, err := amqp10.AppendMessage(nil, &amqp10.Message{ApplicationProperties: values})
	if err != nil {
		panic(fmt.Sprintf("broker: journal: encode the values of a rule: %v", err)) // newRule has checked their types
	}
	return encoded
}

func decodeValues(encoded []byte) (map[string]any, error) {
	if len(encoded) == 0 {
		return nil, nil
	}
	m, err := amqp10.DecodeMessage(encoded)
	if err != nil {
		return nil, fmt.Errorf("decode values: %w", err)
	}
	return m.ApplicationProperties, nil
}

// A Record is a rule in a journal. Properties and parameters are stored as the application
// properties of an encoded message, which keeps their types.
type Record struct {
	Name        string             `json:"name"`
	Filter      string             `json:"filter"`
	Expression  string             `json:"expression,omitempty"`
	Correlation *CorrelationFilter `json:"correlation,omitempty"`
	Values      []byte             `json:"values,omitempty"`
	Action      *string            `json:"action,omitempty"`
	ActionWith  []byte             `json:"actionwith,omitempty"`
}
