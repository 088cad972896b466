package amqp10

import "fmt"

type (
	// Source is the node from which a link transfers messages.
	Source struct {
		Address               string
		Durable               uint32
		ExpiryPolicy          Symbol
		Timeout               uint32 // seconds
		Dynamic               bool
		DynamicNodeProperties Map
		DistributionMode      Symbol
		Filter                Map
		DefaultOutcome        any
		Outcomes              []Symbol
		Capabilities          []Symbol
	}

	// Target is the node to which a link transfers messages.
	Target struct {
		Address               string
		Durable               uint32
		ExpiryPolicy          Symbol
		Timeout               uint32 // seconds
		Dynamic               bool
		DynamicNodeProperties Map
		Capabilities          []Symbol
	}
)

func (s *Source) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeSource)
	w.optionalString(s.Address)
	w.uintUnless(s.Durable, 0)
	w.symbol(s.ExpiryPolicy)
	w.uintUnless(s.Timeout, 0)
	w.flag(s.Dynamic)
	w.fields(s.DynamicNodeProperties)
	w.symbol(s.DistributionMode)
	w.fields(s.Filter)
	w.any(s.DefaultOutcome)
	w.symbols(s.Outcomes)
	w.symbols(s.Capabilities)
	return w.end()
}

func (f *fieldReader) source(field string) *Source {
	var s *Source
	f.composite(field, func(code byte, f *fieldReader) error {
		if code != codeSource {
			return fmt.Errorf("the descriptor 0x%02x is not that of a source", code)
		}
		s = &Source{
			Address:               f.string("address"),
			Durable:               f.uint("durable", 0),
			ExpiryPolicy:          f.symbol("expiry-policy"),
			Timeout:               f.uint("timeout", 0),
			Dynamic:               f.bool("dynamic"),
			DynamicNodeProperties: f.fields("dynamic-node-properties"),
			DistributionMode:      f.symbol("distribution-mode"),
			Filter:                f.fields("filter"),
			DefaultOutcome:        f.any("default-outcome"),
			Outcomes:              f.symbols("outcomes"),
			Capabilities:          f.symbols("capabilities"),
		}
		return nil
	})
	return s
}

func (t *Target) appendTo(b []byte) ([]byte, error) {
	w := beginComposite(b, codeTarget)
	w.optionalString(t.Address)
	w.uintUnless(t.Durable, 0)
	w.symbol(t.ExpiryPolicy)
	w.uintUnless(t.Timeout, 0)
	w.flag(t.Dynamic)
	w.fields(t.DynamicNodeProperties)
	w.symbols(t.Capabilities)
	return w.end()
}

// target returns nil for a target of another kind, such as a coordinator of transactions:
// the broker then refuses the link rather than the connection.
func (f *fieldReader) target(field string) *Target {
	var t *Target
	f.composite(field, func(code byte, f *fieldReader) error {
		if code != codeTarget {
			return nil
		}
		t = &Target{
			Address:               f.string("address"),
			Durable:               f.uint("durable", 0),
			ExpiryPolicy:          f.symbol("expiry-policy"),
			Timeout:               f.uint("timeout", 0),
			Dynamic:               f.bool("dynamic"),
			DynamicNodeProperties: f.fields("dynamic-node-properties"),
			Capabilities:          f.symbols("capabilities"),
		}
		return nil
	})
	return t
}
