"""Addresses of many countries, so that the country of a visitor is a thing that can be looked up.

Every prefix lies as a whole in the country it stands for, by the registries' own data; a test asks iptocc.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Country:
    """Where visitors come from: `weight` is its share of them, `prefixes` are /24 (IPv4) or /32 (IPv6)."""

    code: str
    weight: int
    language: str
    prefixes: tuple[str, ...]

    def address(self, random: Random) -> str:
        """One address in this country, the same for the same state of `random`."""
        prefix = self.prefixes[random.getrandbits(16) % len(self.prefixes)]
        if ":" in prefix:
            groups = (f"{random.getrandbits(16):x}" for _ in range(5))
            return f"{prefix}:0:{':'.join(groups)}"
        return f"{prefix}.{1 + random.getrandbits(16) % 254}"


# code, weight, language, prefixes
_TABLE = """
US 220 en-US 167.24.37 108.35.123 24.217.30 162.31.203 2600:1700
GB 90 en-GB 25.32.30 94.13.36 107.62.200 194.66.216 2a00:23c4
DE 95 de-DE 194.175.77 149.233.35 157.163.64 53.185.75 2003:e1
FR 70 fr-FR 88.179.254 163.114.99 92.163.47 92.93.0 2a01:e34
NL 40 nl-NL 87.215.100 62.188.132 146.19.155 145.111.21
BR 60 pt-BR 179.124.41 177.27.233 177.13.152 179.132.103 2804:14c
IN 80 en-IN 49.34.106 103.43.81 103.228.221 103.80.196 2405:201
JP 55 ja-JP 150.29.109 147.157.92 126.215.20 1.77.51 2400:4050
CA 45 en-CA 132.214.84 68.144.2 80.43.73 198.50.231
AU 35 en-AU 203.143.241 131.244.126 1.134.186 110.140.24 2403:5800
IT 40 it-IT 188.14.14 5.97.243 88.46.163 93.40.101
ES 40 es-ES 212.63.114 88.26.52 46.222.170 91.117.136 2a0c:5a80
PL 30 pl-PL 89.72.14 148.81.145 188.95.25 37.8.226 2a02:a310
SE 22 sv-SE 178.111.250 78.72.213 88.144.152 85.226.86 2a00:801
NO 14 nb-NO 85.165.125 2.149.34 92.220.187 46.15.187
DK 14 da-DK 87.104.247 87.48.187 93.162.187 193.89.70
FI 14 fi-FI 62.121.49 86.60.217 195.197.209 37.33.186
CH 18 de-CH 83.77.202 57.48.203 169.33.242 128.142.184 2a02:1200
AT 18 de-AT 146.108.244 62.218.168 185.177.20 46.207.211
BE 16 nl-BE 109.128.26 81.83.208 159.180.201 78.23.148
IE 12 en-IE 137.43.248 46.51.130 57.148.108 194.125.26
PT 12 pt-PT 188.37.139 176.79.88 161.230.59 89.152.40
CZ 12 cs-CZ 88.101.71 81.27.198 78.157.129 194.228.194
GR 8 el-GR 155.207.2 89.210.47 94.64.242 80.107.180
HU 8 hu-HU 80.99.118 31.46.131 94.21.151 147.7.52
RO 10 ro-RO 188.210.230 89.121.223 85.186.91 84.247.70
UA 12 uk-UA 192.162.141 31.131.103 91.105.213 195.211.138
TR 22 tr-TR 88.229.147 161.9.125 151.250.0 188.57.40
IL 10 he-IL 77.127.92 195.225.46 159.117.225 5.102.227
AE 10 ar-AE 66.116.217 5.30.220 77.104.110 176.204.202
SA 10 ar-SA 37.242.61 37.121.181 176.16.119 95.184.194
EG 12 ar-EG 105.33.17 41.68.7 102.44.216 45.105.70
MA 8 fr-MA 41.137.228 105.190.94 105.147.140 102.76.213
ZA 18 en-ZA 41.21.147 102.132.164 41.112.39 129.205.78
NG 16 en-NG 105.123.61 105.125.101 105.127.62 197.255.44
KE 10 en-KE 105.51.202 154.158.219 196.96.22 102.3.106
GH 6 en-GH 129.122.19 45.211.146 196.175.130 45.209.118
MX 35 es-MX 201.102.244 200.76.126 201.158.167 187.174.37
AR 20 es-AR 181.9.196 168.83.203 200.5.199 190.224.59
CO 16 es-CO 168.176.43 181.192.129 161.18.51 181.133.225
CL 12 es-CL 181.212.183 179.57.50 186.79.126 201.246.188
PE 8 es-PE 190.116.102 190.235.252 181.66.47 190.234.230
KR 35 ko-KR 211.48.187 27.96.190 175.218.160 122.33.31
CN 40 zh-CN 120.232.185 101.254.41 103.201.53 124.205.31
TW 14 zh-TW 223.200.203 106.107.192 122.120.126 120.113.135
HK 8 zh-HK 116.49.32 186.244.3 112.119.157 103.207.25
SG 12 en-SG 8.128.108 43.82.38 8.210.157 43.168.97
ID 25 id-ID 43.229.205 115.178.186 39.238.74 39.253.167
MY 10 ms-MY 14.1.181 42.190.2 218.208.37 121.122.173
TH 14 th-TH 125.25.65 183.89.100 180.128.192 203.148.190
VN 16 vi-VN 27.2.243 220.231.67 14.238.84 112.197.153
PH 16 en-PH 203.167.112 203.96.244 124.107.16 112.202.88
PK 12 en-PK 39.42.90 113.203.251 182.184.142 103.123.112
BD 8 bn-BD 115.127.55 202.53.167 103.68.119 103.244.247
NZ 10 en-NZ 166.83.213 222.155.45 219.89.53 58.28.190
KZ 5 ru-KZ 31.169.0 178.90.118 109.201.56 95.59.149
"""


def _countries() -> tuple[Country, ...]:
    rows = (line.split() for line in _TABLE.strip().splitlines())
    return tuple(Country(code, int(weight), language, tuple(rest)) for code, weight, language, *rest in rows)


COUNTRIES = _countries()
