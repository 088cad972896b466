package asb_test

import (
	"context"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/asb"
)

func TestDescribe_HostAlone(t *testing.T) {
	for connection, want := range map[string]core.TransportInfo{
		anyInstance: {System: "servicebus", ServerAddress: "shop.servicebus.windows.net", ServerPort: 5671},
		"Endpoint=sb://localhost:5673/;SharedAccessKeyName=root;SharedAccessKey=" + secretKey: {System: "servicebus", ServerAddress: "localhost", ServerPort: 5673},
	} {
		transport, err := asb.New(asb.Config{ConnectionString: connection})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { transport.Close(context.Background()) })
		if got := transport.Describe(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
