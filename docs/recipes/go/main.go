// Prints the committed records of a topic of faults, in both framings: franz-go and hamba/avro.
//
//	go run . BOOTSTRAP TOPIC GROUP SCHEMAS REGISTRY
//	go run . 127.0.0.1:9092 fault.event.v1 my-own-group schemas/avsc/fault.event.v1 http://127.0.0.1:8081
//
// It ends when all is read.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hamba/avro/v2"
	"github.com/hamba/avro/v2/pkg/crc64"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Decoder reads values by the schema of whoever wrote them, as records of the newest schema here.
type Decoder struct {
	registry string
	newest   avro.Schema
	// Schemas that resolve a writer's into the newest, by fingerprint and by id of the registry.
	byFingerprint map[uint64]avro.Schema
	byID          map[uint32]avro.Schema
}

// NewDecoder reads all versions of a topic's schema: 1.avsc, 2.avsc, ...
func NewDecoder(folder, registry string) (*Decoder, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.avsc"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no schemas in %s: %w", folder, err)
	}
	slices.SortFunc(files, func(a, b string) int { return version(a) - version(b) })
	d := &Decoder{registry, nil, map[uint64]avro.Schema{}, map[uint32]avro.Schema{}}
	var writers []avro.Schema
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		// A cache of its own for each: all versions have one name.
		schema, err := avro.ParseWithCache(string(text), "", &avro.SchemaCache{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		writers, d.newest = append(writers, schema), schema
	}
	for _, writer := range writers {
		if d.byFingerprint[fingerprint(writer)], err = d.resolved(writer); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// logicalType is what Avro's canonical form leaves out, and hamba/avro does not.
var logicalType = regexp.MustCompile(`{"type":("\w+"),"logicalType":"[\w-]+"}`)

// fingerprint returns the CRC-64-AVRO of a schema's canonical form.
func fingerprint(schema avro.Schema) uint64 {
	sum := crc64.New()
	sum.Write([]byte(logicalType.ReplaceAllString(schema.String(), "$1")))
	return sum.Sum64()
}

func version(file string) int {
	number, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".avsc"))
	return number
}

// resolved gives fields that the writer lacks their defaults, and passes over those it adds.
func (d *Decoder) resolved(writer avro.Schema) (avro.Schema, error) {
	return avro.NewSchemaCompatibility().Resolve(d.newest, writer)
}

// Decode returns the record of a value.
func (d *Decoder) Decode(value []byte) (map[string]any, error) {
	schema, body, err := d.schemaOf(value)
	if err != nil {
		return nil, err
	}
	var record map[string]any
	err = avro.Unmarshal(schema, body, &record)
	return record, err
}

func (d *Decoder) schemaOf(value []byte) (avro.Schema, []byte, error) {
	switch {
	case len(value) >= 10 && value[0] == 0xC3 && value[1] == 0x01: // single-object encoding
		print := binary.LittleEndian.Uint64(value[2:10])
		if schema, known := d.byFingerprint[print]; known {
			return schema, value[10:], nil
		}
		return nil, nil, fmt.Errorf("schema %016x is newer than the files: copy schemas/avsc anew", print)
	case len(value) >= 5 && value[0] == 0x00: // Confluent's framing
		schema, err := d.fromRegistry(binary.BigEndian.Uint32(value[1:5]))
		return schema, value[5:], err
	}
	return nil, nil, errors.New("neither single-object encoding nor Confluent's framing")
}

func (d *Decoder) fromRegistry(id uint32) (avro.Schema, error) {
	if schema, known := d.byID[id]; known {
		return schema, nil
	}
	answer, err := http.Get(fmt.Sprintf("%s/schemas/ids/%d", d.registry, id))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var found struct{ Schema string }
	if err := json.NewDecoder(answer.Body).Decode(&found); err != nil || answer.StatusCode != 200 {
		return nil, fmt.Errorf("registry: schema %d: %s: %w", id, answer.Status, err)
	}
	writer, err := avro.ParseWithCache(found.Schema, "", &avro.SchemaCache{})
	if err != nil {
		return nil, err
	}
	d.byID[id], err = d.resolved(writer)
	return d.byID[id], err
}

func main() {
	bootstrap, topic, group, schemas, registry := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	decoder, err := NewDecoder(schemas, registry)
	if err != nil {
		log.Fatal(err)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // the default is read_uncommitted
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for patience := 30 * time.Second; ; patience = time.Second { // the first takes time to join its group
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		fetches := client.PollFetches(ctx)
		cancel()
		if errors.Is(fetches.Err0(), context.DeadlineExceeded) {
			return // all is read
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			log.Fatalf("%s %d: %v", topic, partition, err)
		})
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Value == nil {
				return // a tombstone: the key is gone
			}
			fault, err := decoder.Decode(r.Value)
			if err != nil {
				log.Printf("%s %d, offset %d: %v", r.Topic, r.Partition, r.Offset, err)
				return
			}
			fmt.Println(r.Partition, string(r.Key), fault["seq"], fault["state"], fault["summary"])
		})
	}
}
