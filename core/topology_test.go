package core

import (
	"slices"
	"testing"
)

func TestTopology_ReceivesFrom(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		own    []string
		others []string
	}{
		"an endpoint":            {Config{}, []string{"billing"}, []string{"error"}},
		"with an input queue":    {Config{InputQueue: "orders"}, []string{"orders"}, []string{"billing", "error"}},
		"with an instance queue": {Config{InstanceQueue: true, Instance: "one"}, []string{"billing", "billing-one"}, []string{"error"}},
		"send-only":              {Config{SendOnly: true}, nil, []string{"", "website"}},
	} {
		t.Run(name, func(t *testing.T) {
			ep, err := New("billing", capableTransport(), c.config)
			if err != nil {
				t.Fatal(err)
			}
			topology := ep.topology()
			for _, queue := range c.own {
				if !topology.ReceivesFrom(queue) || !slices.Contains(topology.Queues, queue) {
					t.Errorf("%+v does not receive from %q", topology, queue)
				}
			}
			for _, queue := range c.others {
				if topology.ReceivesFrom(queue) {
					t.Errorf("%+v receives from %q", topology, queue)
				}
			}
		})
	}
}
