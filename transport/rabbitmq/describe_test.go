package rabbitmq

import (
	"context"
	"testing"

	"github.com/reprise-go/reprise/core"
)

func TestDescribe_HostAndPortAlone(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]core.TransportInfo{
		broker:                            {System: "rabbitmq", ServerAddress: "h", ServerPort: 5672},
		"amqps://app:hunter2@h:5000/shop": {System: "rabbitmq", ServerAddress: "h", ServerPort: 5000},
	} {
		transport, err := New(Config{URLs: []string{url}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { transport.Close(context.Background()) })
		if got := transport.Describe(); got != want {
			t.Errorf("%s: %+v, want %+v", url, got, want)
		}
	}
}
