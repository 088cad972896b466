// Package configfile reads the settings of an application from JSON and from environment
// variables: [core.Config], and the application's own beside it.
//
//	var settings struct {
//		Database string
//		Timeout  time.Duration
//		Orders   core.Config
//	}
//	text, err := os.ReadFile("shop.json")
//	...
//	err = configfile.Decode(text, &settings)
//	...
//	err = configfile.DecodeEnv(os.Environ(), "SHOP", &settings)
//
// shop.json, in which SHOP_ORDERS_CONCURRENCY=64 would replace the 32:
//
//	{
//		"database": "postgres://db/shop",
//		"timeout": "30s",
//		"orders": {"concurrency": 32, "recoverability": {"delayed": {"timeIncrease": "1m"}}}
//	}
//
// These rules hold for Config and for the application's structs:
//
//   - A key is the field's name in camel case (errorQueue, url, userID) or the name in its
//     tag (`json:"db_url"`), in exactly this case. Unknown keys, and keys that are given
//     twice, are errors. An error names the key and the place.
//   - A time.Duration is text such as "10s" or "1h30m"; a number is an error.
//   - Fields that hold code (functions, channels, interfaces other than any) are not in the
//     file. They are set in Go.
//   - The fields of an embedded struct stand beside those of the struct that embeds it, as
//     in encoding/json: an embedded Config has no key. As a field with a name it has one.
//   - A type that implements json.Unmarshaler or encoding.TextUnmarshaler reads its value.
//   - null is an error, except for pointers, for any and for types that read it.
//
// These hold for the settings of package core only:
//
//   - A 0, or "", never stands for a default. It is obeyed if it means none (a limit, a
//     timeout, retries); otherwise it is refused with the way to fix it, as for concurrency.
//     Negative numbers are refused, and empty lists except retryAckQueues, for which [] is
//     none.
//   - A level of retries is switched off by "numberOfRetries": 0, and on again by another
//     number or by delays.
//   - Transaction modes and other constants are named without their prefix: "ReceiveOnly",
//     "Never".
//
// Read and write these structs with this package alone. encoding/json reads a duration as
// nanoseconds, ignores unknown keys, and cannot write a Config.
package configfile
