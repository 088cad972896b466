package rabbitmq_test

import (
	"strings"
	"testing"
)

// These change the whole of their server: its memory, its settings, its life.
func TestOwnServer(t *testing.T) {
	if testing.Short() {
		t.Skip("separate servers, alarms and time limits: not in short runs")
	}
	t.Parallel()
	blocks := document(t)
	name, value, _ := strings.Cut(strings.TrimSpace(blocks["consumer-timeout"]), " = ")
	onOwnServers(t, map[string]string{name: value}, []ownServerTest{
		{"consumer timeout is set by operators", func(t *testing.T, _ *broker, s *site) { testOperationConsumerTimeout(t, newOperator(t, s, blocks)) }},
		{"alarm delays sends only", testAlarmDelaysSendsOnly},
		{"alarm of a killed broker is an outage", testAlarmKilledBroker},
		{"consumer timeout is an outage", testConsumerTimeout},
		{"move of a size that the broker refuses", testMovesBrokerRefusesTheSize},
		{"election of a leader fails", testProvisionElectionFails},
		{"restart loses no message", testRestartLosesNoMessage},
	})
}
