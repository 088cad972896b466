package broker

import (
	"fmt"

	"github.com/Azure/go-amqp"
)

// The values of ruleRecord.Filter.
const (
	filterTrue        = "true"
	filterFalse       = "false"
	filterCorrelation = "correlation"
	filterSQL         = "sql"
)

func (r *rule) record() ruleRecord {
	rec := ruleRecord{Name: r.Name, Created: r.created}
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

func (rec *ruleRecord) restore() (*rule, error) {
	values, err := decodeValues(rec.Values)
	if err != nil {
		return nil, err
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
		return nil, fmt.Errorf("the filter %q is not known", rec.Filter)
	}
	if rec.Action != nil {
		parameters, err := decodeValues(rec.ActionWith)
		if err != nil {
			return nil, err
		}
		r.Action = &Action{Expression: *rec.Action, Parameters: parameters}
	}
	return newRule(r, rec.Created)
}

func encodeValues(values map[string]any) []byte {
	if len(values) == 0 {
		return nil
	}
	encoded, err := (&amqp.Message{ApplicationProperties: values}).MarshalBinary()
	if err != nil {
		panic(fmt.Sprintf("broker: journal: encode the values of a rule: %v", err)) // newRule has checked their types
	}
	return encoded
}

func decodeValues(encoded []byte) (map[string]any, error) {
	if len(encoded) == 0 {
		return nil, nil
	}
	m := &amqp.Message{}
	if err := m.UnmarshalBinary(encoded); err != nil {
		return nil, fmt.Errorf("decode values: %w", err)
	}
	return m.ApplicationProperties, nil
}
