package asb_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/internal/planted"
	"github.com/reprise-go/reprise/transport/asb"
)

// placesOfKeys are connection strings with a key (%s) in it, where people write one.
var placesOfKeys = []string{
	"Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=%s",
	"Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=%s;EntityPath=orders",
	"Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=;EntityPath=%s",
	"Endpoint=sb://shop.servicebus.windows.net/;SharedAccessSignature=SharedAccessSignature sr=shop&sig=%s&se=1",
	"Endpoint=sb://root:%s@shop.servicebus.windows.net/",
	"Endpoint=sb://localhost;SharedAccessKeyName=root;SharedAccessKey=%s;UseDevelopmentEmulator=true",
	"SharedAccessKeyName=root;SharedAccessKey=%s",
	"Endpoint=shop.servicebus.windows.net;SharedAccessKey=%s",
	"SharedAccessKey %s",
	"root:%s@shop.servicebus.windows.net",
	"https://shop.servicebus.windows.net/?sig=%s",
	"https://root:%s@shop.servicebus.windows.net/",
}

// FuzzSecrets plants a key into the places of a configuration, and looks for it in the
// configuration, the error and the transport as they are printed.
func FuzzSecrets(f *testing.F) {
	for i, odd := range planted.Oddities() {
		if !testing.Short() || i%8 == 0 {
			f.Add(odd)
		}
	}
	f.Fuzz(func(t *testing.T, odd string) {
		if strings.Contains(strings.ToLower(odd), "endpoint") {
			return // it names a host
		}
		forms := planted.Forms(planted.Secret(odd))
		for i, place := range placesOfKeys {
			text := fmt.Sprintf(place, forms[(i+len(odd))%len(forms)]) // of other secrets it has the other forms
			for field, c := range map[string]asb.Config{
				"ConnectionString": {ConnectionString: text},
				"Namespace":        {Namespace: text},
				"AdminEndpoint":    {ConnectionString: anyInstance, AdminEndpoint: text},
			} {
				subject := field + " " + place
				planted.Check(t, subject, []any{c, &c})
				transport, err := asb.New(c)
				if err != nil {
					planted.Check(t, subject+": New", err)
					continue
				}
				planted.Check(t, subject+": transport", []any{transport, transport.Warnings()})
				if err := transport.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
